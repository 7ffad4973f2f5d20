"""What the ranks of test_watch do; a module of its own, because a process that is started must be able to import it."""

from __future__ import annotations

import ctypes
import os
import threading
import time

from allears import stopping, stores, watching


def be(rank: int, at: str, log: str, doing: str) -> None:
    """Be a watched rank that does one of the things below once the store says ``go``."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT, 0o644), 2)
    store = stores.connect(at, 30.0)
    with watching.named(lambda numbers: [f"u{number}" for number in numbers]):
        watching.move("forward", 14, [rank, 7])
    watching.start(rank, stores.connect(at, 10.0), 60.0)
    store.wait(["go"])
    globals()[doing]()


def move() -> None:
    while True:
        watching.go_on()
        time.sleep(0.05)


def sleep() -> None:
    time.sleep(60)


def wait() -> None:
    with watching.waiting():
        time.sleep(60)


def compute() -> None:
    sum(range(10**13))  # holds the interpreter's lock


def hold() -> None:
    ctypes.PyDLL(None).sleep(60)  # a library that keeps the lock while it waits


def leave_when_asked() -> None:
    with stopping.heeded():
        while not stopping.asked():
            time.sleep(0.01)
    os._exit(stopping.by())


def leave_when_unheard() -> None:
    """Go on after the store is gone, for as long as the thread that tells it stays, and a second more."""
    while any(thread.name == "pulse" for thread in threading.enumerate()):
        time.sleep(0.01)
    time.sleep(1)
    os._exit(0)
