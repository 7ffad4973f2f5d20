"""How a rank that fails says so: a small file that whoever started it reads. What came first is the cause."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from allears import watching
from allears.errors import AllearsError, CheckpointError, SettingsError, TrainingError
from allears.processes import DEBUG

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allears.watching import Pulse

FAILURES = "ALLEARS_FAILURES"
"""Folder for `Failure` files, set by whoever starts the ranks."""


FORK_SERVER_GONE = 255
"""What `multiprocessing` says of a rank whose fork server has ended."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What one rank failed of.

    Attributes:
        rank: which one.
        host: where it ran.
        when: seconds since 1970.
        message: the error's sentence.
        where: what it was doing: step, phase, utterances; empty if nothing is known.
        trace: its traceback; empty where the sentence says all.
        caused: whether it was only left by another one, whose failure is the cause.
        final: whether starting again would come to the same.
        step: plan step that it was in; -1 outside of steps.
    """

    rank: int
    host: str
    when: float
    message: str
    where: str = ""
    trace: str = ""
    caused: bool = False
    final: bool = False
    step: int = -1

    def told(self) -> str:
        """All of it, as it is shown."""
        doing = f" ({self.where})" if self.where else ""
        line = f"error: rank {self.rank} on {self.host}{doing}: {self.message}"
        return f"{self.trace.rstrip()}\n{line}" if self.trace else line


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


def failed(rank: int, error: BaseException) -> Failure:
    """What ``error`` means for whoever started this rank."""
    known = isinstance(error, AllearsError | KeyboardInterrupt)
    pulse = watching.now()
    return Failure(
        rank,
        host(),
        time.time(),
        str(error) if known else f"unexpected {type(error).__name__}: {error}",
        str(pulse),
        "" if known and DEBUG not in os.environ else "".join(traceback.format_exception(error)),
        caused=_lost_others(error),
        final=isinstance(error, SettingsError | TrainingError | CheckpointError) or (known and pulse.step is None),
        step=-1 if pulse.step is None else pulse.step,
    )


def stacks_file(folder: Path, rank: int) -> Path:
    """Where a rank leaves the stacks of its threads for whoever started it."""
    return folder / f"stacks-{rank}.txt"


def report(failure: Failure) -> None:
    """Leave ``failure`` for whoever started this rank; nothing where nobody asked for one."""
    folder = os.environ.get(FAILURES)
    if folder:
        path = Path(folder) / f"rank-{failure.rank}.json"
        beside = path.with_suffix(".partial")
        beside.write_text(json.dumps(asdict(failure)), encoding="utf-8")
        beside.replace(path)


def reported(folder: Path) -> list[Failure]:
    """All failures in ``folder``."""
    return [Failure(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("rank-*.json")]


def cause(failures: Iterable[Failure]) -> Failure | None:
    """The one that the others follow from: the earliest of those that were not left by another."""
    return min(failures, key=lambda failure: (failure.caused, failure.when), default=None)


def ended(rank: int, code: int, pulse: Pulse | None, memory: bool, output: str) -> Failure:
    """What is known of a rank that ended without a word of its own.

    Args:
        rank: which one.
        code: its exit code; negative where a signal ended it.
        pulse: what it was last heard of.
        memory: whether the kernel has killed a process of this machine for want of memory meanwhile.
        output: the end of what it wrote.
    """
    if code == 0:
        how = "left with exit code 0 before the others"
    elif code == FORK_SERVER_GONE:
        how = "was lost with the process that ranks are forked from, which something has killed"
    elif code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
        if -code == signal.SIGKILL and memory:
            how += " when this machine had no memory left; use fewer processes or workers, or smaller micro-batches"
    else:
        how = f"left with exit code {code} without a word of its own"
    where = "" if pulse is None else f"last heard: {pulse}"
    # gloo's own threads abort where another rank is lost.
    caused = code == -signal.SIGABRT
    return Failure(rank, host(), time.time(), f"it {how}.", where, output if code > 0 else "", caused)


def out_of_memory_kills() -> int:
    """How many processes the kernel of this machine has killed for want of memory since it started; Linux only."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def elsewhere(failure: Failure) -> str:
    """``failure`` for another machine."""
    return json.dumps(asdict(replace(failure, trace=failure.trace[-10_000:])))


def from_elsewhere(text: str) -> Failure:
    """What `elsewhere` wrote."""
    return Failure(**json.loads(text))


def _lost_others(error: BaseException) -> bool:
    """Whether ``error`` says no more than that another rank is gone."""
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in ("gloo", "Connection", "NCCL"))
