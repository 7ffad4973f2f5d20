"""A polite end: schedulers send SIGTERM or SIGUSR1 before they kill, and a training then saves after its step.

A signal handler in Python has to wait while a collective blocks; the interpreter's wakeup descriptor, which a thread
reads, does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

STOPPED = 75
"""Exit code of a training that was asked to stop, has saved, and goes on by the same command (EX_TEMPFAIL)."""

_heeding = threading.Event()
_asked = threading.Event()


def listen() -> None:
    """Hear `SIGNALS` from now on; by the main thread. They end the process at once, but for what `heeded` says."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)  # what a library waits for goes on
    threading.Thread(target=_hear, args=(read,), name="signals", daemon=True).start()


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """While in here, a signal does not end the process: `asked` says whether one has come."""
    _asked.clear()
    _heeding.set()
    try:
        yield
    finally:
        _heeding.clear()


def asked() -> bool:
    """Whether this process has been asked to stop."""
    return _asked.is_set()


def _hear(read: int) -> None:
    while True:
        for number in os.read(read, 64):
            if number in SIGNALS:
                if not _heeding.is_set():
                    os._exit(128 + number)
                _asked.set()
