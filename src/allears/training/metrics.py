"""``metrics.jsonl``: one line a step, rolled back to the checkpoint when a run is resumed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from allears.files import written

if TYPE_CHECKING:
    from pathlib import Path

    from allears.types import StepReport


class Journal:
    """Keeps nothing: the journal of a rank that does not lead."""

    def write(self, report: StepReport) -> None:
        """Add a step."""

    def validation(self, step: int, name: str, values: dict[str, float]) -> None:
        """Add the results of a validation before plan step ``step``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened."""


class Metrics(Journal):
    """Appends to a run's metrics; the lines of steps from ``start`` on are removed first."""

    def __init__(self, path: Path, start: int) -> None:
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    if json.loads(line)["step"] < start:
                        kept.append(line)
                except (ValueError, KeyError):
                    continue  # the line that a kill cut short
        with written(path) as file:
            file.write("".join(f"{line}\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def write(self, report: StepReport) -> None:
        self._file.write(json.dumps(asdict(report)) + "\n")
        self._file.flush()

    def validation(self, step: int, name: str, values: dict[str, float]) -> None:
        self._file.write(json.dumps({"step": step - 1, "validation": name, **values}) + "\n")
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.close()
