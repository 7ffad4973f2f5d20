"""How a rank that fails says so: a small file that whoever started it reads, earliest first."""

from __future__ import annotations

import json
import os
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

FAILURES = "ALLEARS_FAILURES"
"""Folder for `Failure` files, set by whoever starts the ranks."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What one rank failed of.

    Attributes:
        rank: which one.
        when: seconds since 1970.
        message: the error's sentence.
        trace: its traceback.
    """

    rank: int
    when: float
    message: str
    trace: str


def report(rank: int, error: BaseException, message: str) -> None:
    """Leave a `Failure` for whoever started this rank; nothing where nobody asked for one."""
    folder = os.environ.get(FAILURES)
    if folder:
        failure = Failure(rank, time.time(), message, "".join(traceback.format_exception(error)))
        path = Path(folder) / f"rank-{rank}.json"
        beside = path.with_suffix(".partial")
        beside.write_text(json.dumps(asdict(failure)), encoding="utf-8")
        beside.replace(path)


def first(folder: Path) -> Failure | None:
    """The earliest failure in ``folder``."""
    found = [Failure(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("rank-*.json")]
    return min(found, key=lambda failure: failure.when, default=None)
