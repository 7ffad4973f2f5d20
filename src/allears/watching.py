"""What this process is doing, told to whoever watches it, and its end when it does nothing for too long.

move      the main thread says where it is, which costs as much as making a tuple
share     a thread puts that into a store each half second, and sees there whether all are to stop
guard     another one ends a process that does not move, with the stacks of all its threads; should it not come to run
          because something holds the interpreter's lock, an alarm that needs no lock does the same
SIGUSR2   writes the stacks, also while something holds that lock
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from allears import stopping
from allears.reporting import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch.distributed import Store  # type: ignore[attr-defined]  # its stub does not list it

SHARE_SECONDS = 0.5
"""How often a process says what it is doing."""

_NAMED = 5  # utterances in a pulse
_STDERR = 2  # the descriptor: whatever it leads to at the time


class _Doing(NamedTuple):
    phase: str
    step: int | None
    utterances: Sequence[int]
    ids: Callable[[list[int]], list[str]] | None
    waiting: bool
    moves: int
    since: float


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a process was doing at one moment.

    Attributes:
        rank: which one.
        host: where it runs.
        pid: its process id.
        phase: such as ``forward``; empty before the first.
        step: plan step; none outside of steps.
        moves: how many times it has moved.
        seconds: since it last did.
        waiting: whether it waits for other ranks.
        utterances: ids of the first ones that it works on.
        more: how many there are besides.
    """

    rank: int
    host: str
    pid: int
    phase: str
    step: int | None
    moves: int
    seconds: float
    waiting: bool = False
    utterances: tuple[str, ...] = ()
    more: int = 0

    def __str__(self) -> str:
        step = [] if self.step is None else [f"step {self.step}"]
        more = f" and {self.more} more" if self.more else ""
        utterances = [f"utterances {', '.join(self.utterances)}{more}"] if self.utterances else []
        return ", ".join([*step, self.phase or "starting", *utterances])

    def json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def of(cls, text: str) -> Pulse:
        """What `json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "utterances": tuple(values["utterances"])})


_doing = _Doing("", None, (), None, False, 0, time.monotonic())
_ids: Callable[[list[int]], list[str]] | None = None
_rank = 0


def move(phase: str, step: int | None = None, utterances: Sequence[int] = ()) -> None:
    """Say what the main thread does from now on; ``utterances`` are numbers that `named` can name."""
    global _doing  # noqa: PLW0603 - one of each process
    _doing = _Doing(phase, step, utterances, _ids, False, _doing.moves + 1, time.monotonic())


def go_on(utterances: Sequence[int] = ()) -> None:
    """Say that the phase goes on, with these utterances."""
    move(_doing.phase, _doing.step, utterances)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """While in here, the main thread waits for other ranks."""
    global _doing  # noqa: PLW0603
    before = _doing
    _doing = before._replace(waiting=True, moves=before.moves + 1, since=time.monotonic())
    try:
        yield
    finally:
        _doing = before._replace(moves=before.moves + 2, since=time.monotonic())


@contextlib.contextmanager
def named(ids: Callable[[list[int]], list[str]]) -> Iterator[None]:
    """While in here, ``ids`` turns the numbers of utterances into ids; it is called only when somebody asks."""
    global _ids  # noqa: PLW0603
    before, _ids = _ids, ids
    try:
        yield
    finally:
        _ids = before


def now() -> Pulse:
    """What this process is doing."""
    doing = _doing
    seconds = round(time.monotonic() - doing.since, 3)
    pulse = (_rank, socket.gethostname(), os.getpid(), doing.phase, doing.step, doing.moves, seconds, doing.waiting)
    if doing.ids is None:
        return Pulse(*pulse)
    first = list(doing.utterances[:_NAMED])
    return Pulse(*pulse, tuple(doing.ids(first)), len(doing.utterances) - len(first))


def pulse_key(rank: int) -> str:
    """Where the pulse of ``rank`` is in the store."""
    return f"pulse/{rank}"


def start(rank: int, store: Store | None, stall_seconds: float, stacks: Path | None = None) -> None:
    """Let this process be watched from now on.

    Args:
        rank: of this process.
        store: a connection for nothing else, or none where nobody watches; when it is lost, nothing is told any more.
        stall_seconds: at one and a half times that without a move this process ends, so that whoever watches all
            ranks, and knows more, comes first. A rank that waits for others is left to the collective's own timeout:
            they are the cause.
        stacks: file that gets the stacks of all threads at SIGUSR2; stderr if none is named.
    """
    global _rank  # noqa: PLW0603
    _rank = rank
    # Never closed: a signal may come at any time.
    file = _STDERR if stacks is None else os.open(stacks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    faulthandler.register(signal.SIGUSR2, file, all_threads=True)
    threading.Thread(target=_guard, args=(1.5 * stall_seconds,), name="guard", daemon=True).start()
    if store is not None:
        threading.Thread(target=_share, args=(store,), name="pulse", daemon=True).start()


def _share(store: Store) -> None:
    key, asked = pulse_key(_rank), False
    with contextlib.suppress(RuntimeError):  # the store is gone
        while True:
            store.set(key, now().json())
            if not asked and store.check([stopping.STOP]):
                asked = True
                stopping.ask(int(store.get(stopping.STOP)))
            time.sleep(SHARE_SECONDS)


def _guard(limit: float) -> None:
    """End this process when it has not moved for ``limit`` seconds; those in which it was stopped do not count."""
    pause, quiet, seen = min(SHARE_SECONDS, limit / 20), 0.0, -1
    while quiet < limit:
        # Put off each time: it comes only where this thread does not.
        faulthandler.dump_traceback_later(limit, exit=True, file=_STDERR)
        time.sleep(pause)
        quiet = 0.0 if _doing.moves != seen or _doing.waiting else quiet + pause
        seen = _doing.moves
    say(f"error: rank {_rank} ({now()}) has not moved for {limit:g} s; it ends, and this is where its threads are:")
    faulthandler.dump_traceback(_STDERR, all_threads=True)
    os._exit(1)
