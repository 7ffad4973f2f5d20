"""What the workers of test_pool do; a module of its own, because a spawned process must be able to import it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from allears.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator


def squares(task: int) -> Iterator[int]:
    yield task
    yield task * task


def die(task: int) -> Iterator[int]:
    yield os.getpid()
    os.kill(os.getpid(), task)
    time.sleep(60)


def fail(task: str) -> Iterator[int]:
    if task == "sentence":
        raise CorpusError("Something is wrong; mend it.")
    if task == "disk":
        raise OSError(28, "No space left on device")
    yield 1 // 0


def noisy(task: int) -> Iterator[int]:
    os.write(2, b"library noise")
    os.write(1, b"library noise")
    yield task


def sleepy(task: int) -> Iterator[int]:
    yield os.getpid()
    time.sleep(60)
    yield task
