"""What a training leaves behind of its steps: ``metrics.jsonl``, one line each, and the same as TensorBoard events.

Both are rolled back to the checkpoint when a run is resumed.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from allears.files import writing, written

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


class _Lines:
    """A file of JSON lines, each with a ``step``; those of steps from ``start`` on are removed first."""

    def __init__(self, path: Path, start: int) -> None:
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
        self._path = path
        self._file = path.open("a", encoding="utf-8")

    def add(self, line: dict[str, Any]) -> None:
        with writing(self._path):
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a line that could not be written has been an error already
            self._file.close()


class Metrics(Journal):
    """Appends to a run's files; what they hold of steps from ``start`` on is removed first.

    Args:
        run: folder of the run.
        start: first plan step.
        tensorboard: whether events for TensorBoard are written.
        digests: whether digests of tensors are.
    """

    def __init__(self, run: Path, start: int, tensorboard: bool = False, digests: bool = False) -> None:
        self._lines = _Lines(run / "metrics.jsonl", start)
        self._digests = _Lines(run / "digests.jsonl", start) if digests else None
        self._events: SummaryWriter | None = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # half a second: just where it is wanted

            self._events = SummaryWriter(str(run / "tensorboard"), purge_step=start)

    def write(self, report: StepReport) -> None:
        line = asdict(report)
        self._lines.add(line)
        if self._events is not None:
            seconds = {f"seconds/{name}": value for name, value in line.pop("seconds").items()}
            for name, value in {**line, **seconds}.items():
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
        self._lines.close()
        if self._digests is not None:
            self._digests.close()
        if self._events is not None:
            self._events.close()
