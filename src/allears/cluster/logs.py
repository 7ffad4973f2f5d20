"""RUN/logs/rank-N.log: what each rank of a run has written, attempt after attempt."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from allears.cluster.failure import FAILURES, host
from allears.reporting import kept_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allears.world import World


def log_file(run: Path, rank: int) -> Path:
    """Where the log of a rank lies."""
    return run / "logs" / f"rank-{rank}.log"


def output_file(folder: Path, rank: int) -> Path:
    """Where the launcher lets a rank write until it knows its run."""
    return folder / f"rank-{rank}.log"


@contextlib.contextmanager
def launcher_logged(run: Path) -> Iterator[None]:
    """Let what the launcher says, such as why a rank has died, be in ``RUN/logs/launch.log`` too."""
    path = run / "logs" / "launch.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", buffering=1) as file, kept_in(file):
        file.write(f"--- {_time()} launched on {host()}, process {os.getpid()}\n")
        yield


def _time() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


@contextlib.contextmanager
def logged(run: Path, world: World) -> Iterator[None]:
    """Let this rank write into its log; the first one goes on writing to the terminal, and its notes are in both.

    Under other launchers, whose business output is, only the notes are kept.
    """
    path = log_file(run, world.rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", buffering=1) as file:
        file.write(f"--- {_time()} rank {world.rank} of {world.size} on {host()}, process {os.getpid()}\n")
        before = output_file(Path(os.environ[FAILURES]), world.rank) if FAILURES in os.environ else None
        if before is None or not before.exists():
            with kept_in(file):
                try:
                    yield
                except Exception:
                    traceback.print_exc(file=file)
                    raise
            return
        sys.stdout.flush()
        sys.stderr.flush()
        file.write(before.read_text(encoding="utf-8", errors="replace"))
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
        before.unlink()
        before.symlink_to(path.resolve())  # whoever started this rank still finds what it wrote
        yield
