"""Broken and odd files: the table of tests/audio/odd_files.py, run, and what ends a process, counted."""

from __future__ import annotations

import importlib.util
import re
import sys

from tests.audio.odd_files import ODD, Right

from proof.commands import run
from proof.rows import Measured

TABLE = "tests/audio/test_odd_files.py"
PROCESSES = ("tests/shards/test_prepare.py", "-k", "ends_its_process or crashes_decoders or somebody_ends")


def measure_files() -> Measured:
    """Issue "layouts", line 3."""
    known = len({odd.name for odd in ODD})
    right = sum(isinstance(odd.outcome, Right) for odd in ODD)
    table, crashes = _passed(TABLE), _passed(*PROCESSES)
    single = _passed(TABLE, "-k", "test_an_odd_file and not in_memory")
    av = importlib.util.find_spec("av") is not None
    return Measured(
        f"{known} kinds: {right} read right, samples compared, {known - right} rejected with their true reason; "
        f"{single} run{'' if av else ' (PyAV is missing)'}, also from memory and all as one corpus: {table} tests "
        f"passed, nothing printed; {crashes} tests of files that end their process (SIGSEGV, SIGABRT, SIGKILL, "
        "exit): rejected by name, the others prepared",
        av and known == single >= 60 and crashes >= 4,
    )


def _passed(*tests: str) -> int:
    """How many tests passed, where none failed."""
    last = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests).stdout.splitlines()[-1]
    found = re.match(r"(\d+) passed", last)
    return int(found[1]) if found else 0
