"""A polite end: schedulers send SIGTERM or SIGUSR1 before they kill, people press Ctrl-C; a training then saves.

A signal handler in Python has to wait while a collective blocks; the interpreter's wakeup descriptor, which a thread
reads, does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""What schedulers send."""

HEARD = (*SIGNALS, signal.SIGINT)
"""What asks a training to stop."""

STOPPED = 75
"""Exit code of a training that was asked to stop by a scheduler, and goes on by the same command (EX_TEMPFAIL)."""

STOP = "stop"
"""Key of a store at which a launcher tells all ranks to stop: the signal's number."""

_heeding = threading.Event()
_asked: list[int] = []
_code: list[int] = []


def listen(code: int | None = None, launched: bool = False) -> None:
    """Hear `SIGNALS` from now on; by the main thread. They end the process at once, but for what `heeded` says.

    Args:
        code: exit code then; by default as shells do, 128 and the signal's number.
        launched: Ctrl-C reaches this process and its launcher alike, which says what is to be done.
    """
    _code[:] = [] if code is None else [code]
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)  # what a library waits for goes on
    if launched:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hear(lambda number: ask(number) if number in SIGNALS or _heeding.is_set() else None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)  # what came before is heard now


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """While in here, a signal does not end the process: `asked` says whether one has come. Ctrl-C counts too, once."""
    _asked.clear()
    before = signal.getsignal(signal.SIGINT)
    mine = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    _heeding.set()
    if mine:
        signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGINT, before)
        _heeding.clear()


def asked() -> bool:
    """Whether this process has been asked to stop."""
    return bool(_asked)


def by() -> int:
    """The signal by which it was first asked; 0 if it was not."""
    return _asked[0] if _asked else 0


def ask(number: int) -> None:
    """Ask this process to stop, as signal ``number`` would: after its step, or at once where there is none."""
    if _heeding.is_set() and not (number == signal.SIGINT and asked()):
        if number == signal.SIGINT:
            print("stopping after this step; Ctrl-C again ends at once.", file=sys.stderr, flush=True)
        _asked.append(number)
        return
    os._exit(_code[0] if _code and number in SIGNALS else 128 + number)


@contextlib.contextmanager
def heard_by(act: Callable[[int], None]) -> Iterator[None]:
    """While in here, ``act`` is called, in a thread, with each of `HEARD` that comes; only from the main thread."""
    if threading.current_thread() is not threading.main_thread():  # only there Python takes handlers
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in HEARD}
    fd = signal.set_wakeup_fd(-1)
    end = _hear(lambda number: act(number) if number in HEARD else None)
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd)
        end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _hear(act: Callable[[int], None]) -> Callable[[], None]:
    """Start the thread that reads the wakeup descriptor; returns what ends it."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def hear() -> None:
        while numbers := os.read(read, 64):
            for number in numbers:
                act(number)
        os.close(read)

    threading.Thread(target=hear, name="signals", daemon=True).start()
    return lambda: os.close(write)
