"""Files with a line for each step, which go back to where a run goes on from."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Self

from allears.files import writing, written

if TYPE_CHECKING:
    from pathlib import Path


class StepLines:
    """A file of JSON lines, each with a ``step``; those of steps from ``start`` on, and broken ones, are removed first.

    Raises:
        DataError: it cannot be written.
    """

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
        """Append a line; it is there for readers at once."""
        with writing(self._path):
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # a line that could not be written has been an error already
            self._file.close()
