"""The ranks of one attempt on this machine, forked from a process that has imported everything already.

Python's fork server (`multiprocessing`) keeps that process; starting a rank takes milliseconds instead of seconds, and
all ranks share the memory of what was imported. Whoever is killed takes those below along: the kernel kills the fork
server when the launcher ends, and the ranks when the fork server does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import time
from multiprocessing import forkserver, resource_tracker, util
from typing import TYPE_CHECKING

from allears.processes import LIFELINE, tie_to
from allears.stopping import HEARD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PRELOADED = (
    "allears.cluster.warm",
    "allears.run.train",
    "allears.run.recognise",
    "allears.cli.main",
    "torch._dynamo",  # the first optimizer imports it: measured, three seconds of a restart
)
"""What ranks need not import any more; by name, as some are rooms above this one."""


GONE_SECONDS = 3.0
"""How long to wait for ranks that were killed."""


def warm() -> None:
    """Start the fork server, which then imports while this process does something else."""
    multiprocessing.set_forkserver_preload(list(PRELOADED))
    resource_tracker.ensure_running()  # by itself, as it opens the mask when it has started
    # A rank hears signals when it is ready to; one that comes before waits. Masks are inherited.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    os.environ[LIFELINE] = str(os.getpid())
    try:
        forkserver.ensure_running()
    finally:
        del os.environ[LIFELINE]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def swept() -> None:
    """Remove what `multiprocessing` keeps in the file system, where its own end is not waited for."""
    shutil.rmtree(util.get_temp_dir(), ignore_errors=True)


class Forks:
    """Ranks that run ``allears ARGUMENTS``.

    Args:
        arguments: of the command.
        environments: of each rank, in the order of local ranks.
        outputs: what each rank writes goes there; none where it goes to this terminal.
    """

    def __init__(
        self, arguments: Sequence[str], environments: Sequence[dict[str, str]], outputs: Sequence[Path | None]
    ) -> None:
        warm()
        context = multiprocessing.get_context("forkserver")
        self._ranks = [
            context.Process(target=_be_rank, args=(list(arguments), environment, None if out is None else str(out)))
            for environment, out in zip(environments, outputs, strict=True)
        ]
        for rank in self._ranks:
            rank.start()

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order of local ranks."""
        return [rank.pid or 0 for rank in self._ranks]

    def codes(self) -> list[int | None]:
        """Exit codes: none while a rank runs, negative where a signal ended it."""
        return [rank.exitcode for rank in self._ranks]

    def signal(self, number: int) -> None:
        """Send signal ``number`` to those who have not left; one that does not hear it yet will."""
        for rank in self._ranks:
            if rank.exitcode is None and rank.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, number)

    def end(self, grace: float = 0.0) -> None:
        """Kill those who have not left after ``grace`` seconds, and wait until they are gone."""
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and None in self.codes():
            time.sleep(0.01)
        for rank in self._ranks:
            if rank.exitcode is None:
                rank.kill()
        until = time.monotonic() + GONE_SECONDS
        for rank in self._ranks:
            rank.join(max(until - time.monotonic(), 0.0))
        if any(rank.exitcode is None for rank in self._ranks):
            # A device or a disk holds them, or the fork server is stopped: the next ranks get a new one.
            with contextlib.suppress(ProcessLookupError, AttributeError, TypeError):
                os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]


def _be_rank(arguments: list[str], environment: dict[str, str], output: str | None) -> None:
    """Be ``python -m allears ARGUMENTS`` in ``environment``."""
    tie_to(os.getppid())
    launcher = multiprocessing.parent_process()
    if launcher is None or not launcher.is_alive():
        os._exit(1)
    os.environ.clear()
    os.environ.update(environment)
    if output is not None:
        kept = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(kept, sys.stdout.fileno())
        os.dup2(kept, sys.stderr.fileno())
        os.close(kept)
    sys.argv = ["allears", *arguments]
    runpy.run_module("allears", run_name="__main__")
