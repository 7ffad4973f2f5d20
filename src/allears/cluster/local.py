"""Several ranks on this machine: the same command once a rank, with the variables that any launcher sets."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from allears.cluster.failure import FAILURES, Failure, first
from allears.errors import SettingsError
from allears.processes import DEBUG, LIFELINE, RENDEZVOUS
from allears.reporting import say
from allears.stopping import SIGNALS, STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GRACE_SECONDS = 2.0
"""How long ranks may take to leave after one of them has failed, before they are killed."""


def launched() -> bool:
    """Whether this process is one rank of a group that somebody started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launch(arguments: Sequence[str], processes: int) -> int:
    """Run ``python -m allears ARGUMENTS`` as ``processes`` ranks and wait.

    The first rank writes to this terminal; what the others write is shown only when they fail. When one fails, all
    end within `GRACE_SECONDS`, and its own error is what is shown. SIGTERM and SIGUSR1 are passed on to all ranks.

    Returns:
        The exit code: 0 when all ranks succeeded; `STOPPED` when they saved and stopped after such a signal.

    Raises:
        SettingsError: ``processes`` is not positive.
    """
    if processes < 1:
        raise SettingsError(f"--processes must be at least 1, not {processes}.")
    with tempfile.TemporaryDirectory(prefix="allears-") as folder, contextlib.ExitStack() as stack:
        ranks = [_start(arguments, rank, processes, Path(folder), stack) for rank in range(processes)]
        try:
            with _passing_on(ranks) as passed_on:
                failed = _wait(ranks)
        except BaseException:
            _end(ranks, signal.SIGINT)
            raise
        if failed is None:
            return max(rank.returncode for rank in ranks)
        if passed_on and ranks[failed].returncode in {-passed_on[0], 128 + passed_on[0]}:  # there was nothing to save
            _end(ranks, signal.SIGTERM)
            return 128 + passed_on[0]
        time.sleep(0.2)  # an error on one rank makes others fail too; let the first one finish writing
        codes = [rank.poll() for rank in ranks]
        _end(ranks, signal.SIGTERM)
        _tell(failed, codes, Path(folder))
        return 1


def _start(
    arguments: Sequence[str], rank: int, processes: int, folder: Path, stack: contextlib.ExitStack
) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(processes),
        RENDEZVOUS: f"file://{folder}/rendezvous",
        FAILURES: str(folder),
        LIFELINE: str(os.getpid()),
    }
    output = None if rank == 0 else stack.enter_context((folder / f"rank-{rank}.log").open("wb"))
    return subprocess.Popen(
        [sys.executable, "-m", "allears", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


@contextlib.contextmanager
def _passing_on(ranks: list[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """Send `SIGNALS` that come in here to all ranks; yields a list that fills with them."""
    passed_on: list[int] = []

    def pass_on(number: int, _: object) -> None:
        passed_on.append(number)
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS} if _in_main_thread() else {}
    try:
        yield passed_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()  # only there Python takes handlers


def _wait(ranks: list[subprocess.Popen[bytes]]) -> int | None:
    """The first rank seen to fail, or None when all have succeeded."""
    while True:
        codes = [rank.poll() for rank in ranks]
        for rank, code in enumerate(codes):
            if code not in {None, 0, STOPPED}:
                return rank
        if None not in codes:
            return None
        time.sleep(0.02)


def _end(ranks: list[subprocess.Popen[bytes]], polite: signal.Signals) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(polite)
    deadline = time.monotonic() + GRACE_SECONDS
    for rank in ranks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.wait(max(deadline - time.monotonic(), 0.0))
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
            rank.wait()


def _tell(failed: int, codes: list[int | None], folder: Path) -> None:
    """Say what failed first: a rank that was killed (it could not say so itself), else the earliest error."""
    killed = [rank for rank, code in enumerate(codes) if code is not None and code < 0]
    failure = None if killed else first(folder)
    if failure is None:
        rank = killed[0] if killed else failed
        code = codes[rank] or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
        log = folder / f"rank-{rank}.log"
        tail = log.read_text(encoding="utf-8", errors="replace")[-4000:] if log.exists() else ""
        failure = Failure(rank, 0.0, f"it {how} without a word of its own.", tail)
    if failure.trace and (DEBUG in os.environ or failure.when == 0.0):
        say(failure.trace.rstrip())
    say(f"error: rank {failure.rank}: {failure.message}")
