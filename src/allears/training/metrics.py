"""What a training leaves behind of its steps: ``metrics.jsonl``, one line each, and the same as TensorBoard events.

Both are rolled back to the checkpoint when a run is resumed.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from allears.training.lines import StepLines

if TYPE_CHECKING:
    from pathlib import Path

    from torch.utils.tensorboard import SummaryWriter

    from allears.types import StepReport


class Journal:
    """Keeps nothing: the journal of a rank that does not lead."""

    def write(self, report: StepReport) -> None:
        """Add a step."""

    def validation(self, step: int, name: str, values: dict[str, float], headline: str) -> None:
        """Add the rates of a validation before plan step ``step``, and which of them counts."""

    def digests(self, step: int, of: dict[str, str]) -> None:
        """Add the digests of all tensors after plan step ``step``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened."""


class Metrics(Journal):
    """Appends to a run's files; what they hold of steps from ``start`` on is removed first.

    Args:
        run: folder of the run.
        start: first plan step.
        tensorboard: whether events for TensorBoard are written.
        digests: whether digests of tensors are.
    """

    def __init__(self, run: Path, start: int, tensorboard: bool = False, digests: bool = False) -> None:
        self._lines = StepLines(run / "metrics.jsonl", start)
        self._digests = StepLines(run / "digests.jsonl", start) if digests else None
        self._events: SummaryWriter | None = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # half a second: just where it is wanted

            self._events = SummaryWriter(str(run / "tensorboard"), purge_step=start)

    def write(self, report: StepReport) -> None:
        line = asdict(report)
        self._lines.add(line)
        if self._events is not None:
            for group in ("seconds", "slowest"):
                line |= {f"{group}/{name}": value for name, value in line.pop(group).items()}
            for name, value in line.items():
                if name != "step":
                    self._events.add_scalar(name if "/" in name else f"step/{name}", float(value), report.step)

    def validation(self, step: int, name: str, values: dict[str, float], headline: str) -> None:
        self._lines.add({"step": step - 1, "validation": name, **values, "headline": headline})
        if self._events is not None:
            for rate, value in values.items():
                self._events.add_scalar(f"{name}/{rate}", value, step - 1)

    def digests(self, step: int, of: dict[str, str]) -> None:
        if self._digests is not None:
            self._digests.add({"step": step, "digests": of})

    def __exit__(self, *_: object) -> None:
        self._lines.__exit__()
        if self._digests is not None:
            self._digests.__exit__()
        if self._events is not None:
            self._events.close()
