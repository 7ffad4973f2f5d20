"""What a training leaves behind of its steps: ``metrics.jsonl``, one line each, and the same as TensorBoard events.

Both are rolled back to the checkpoint when a run is resumed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from allears.files import written

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened."""


class Metrics(Journal):
    """Appends to a run's metrics; the lines of steps from ``start`` on are removed first.

    Args:
        path: of ``metrics.jsonl``.
        start: first plan step.
        events: folder for TensorBoard; none writes none.
    """

    def __init__(self, path: Path, start: int, events: Path | None = None) -> None:
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    if json.loads(line)["step"] < start:
                        kept.append(line)
                except (ValueError, KeyError, TypeError):
                    continue  # the line that a kill cut short
        with written(path) as file:
            file.write("".join(f"{line}\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")
        self._events: SummaryWriter | None = None
        if events is not None:
            from torch.utils.tensorboard import SummaryWriter  # half a second: just where it is wanted

            self._events = SummaryWriter(str(events), purge_step=start)

    def write(self, report: StepReport) -> None:
        line = asdict(report)
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if self._events is not None:
            seconds = {f"seconds/{name}": value for name, value in line.pop("seconds").items()}
            for name, value in {**line, **seconds}.items():
                if name != "step":
                    self._events.add_scalar(name if "/" in name else f"step/{name}", float(value), report.step)

    def validation(self, step: int, name: str, values: dict[str, float], headline: str) -> None:
        self._file.write(json.dumps({"step": step - 1, "validation": name, **values, "headline": headline}) + "\n")
        self._file.flush()
        if self._events is not None:
            for rate, value in values.items():
                self._events.add_scalar(f"{name}/{rate}", value, step - 1)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()
