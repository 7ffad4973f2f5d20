"""Files with a line for each step, which go back to where a run goes on from."""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from allears.files import writing

if TYPE_CHECKING:
    from pathlib import Path


_BLOCK = 1 << 16  # bytes


class StepLines:
    """A file of JSON lines, each with a ``step``, in their order; those of steps from ``start`` on are removed first.

    Just the end of the file is read for that, however long the run has been.

    Raises:
        DataError: it cannot be written.
    """

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
            self._file.truncate(_end(self._file, start))

    def add(self, line: dict[str, Any]) -> None:
        """Append a line; it is there for readers at once."""
        with writing(self._path):
            self._file.write((json.dumps(line) + "\n").encode())
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # a line that could not be written has been an error already
            self._file.close()


def _end(file: BinaryIO, start: int) -> int:
    """Where the last whole line of a step before ``start`` ends."""
    end, tail = file.seek(0, os.SEEK_END), b""
    while end > 0:
        begin = max(end - _BLOCK, 0)
        file.seek(begin)
        tail, end = file.read(end - begin) + tail, begin
        first = tail.find(b"\n") + 1 if begin else 0  # the line before may begin further ahead
        if begin and not first:
            continue
        at = begin + len(tail)
        for line in reversed(tail[first:].splitlines(keepends=True)):
            if line.endswith(b"\n") and _step(line) < start:
                return at
            at -= len(line)
        tail = tail[:first]
    return 0


def _step(line: bytes) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return math.inf  # not written to its end
