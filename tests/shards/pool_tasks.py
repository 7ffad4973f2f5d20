"""What the workers of test_pool do; a module of its own, because a spawned process must be able to import it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from allears.audio import files
from allears.audio.opening import opened
from allears.errors import CorpusError
from allears.shards import pool
from allears.shards.write import write_shard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allears.audio.forward import Decoder
    from allears.shards.write import Task


def squares(task: int) -> Iterator[int]:
    yield task
    yield task * task


def die(task: int) -> Iterator[int]:
    yield os.getpid()
    os.kill(os.getpid(), task)
    time.sleep(60)


def fragile(task: Task) -> Iterator[tuple[int, int]]:
    """As `write_shard`, with a decoder that ends its process at files that say how."""

    def opening(file: BinaryIO, name: str, path: str | None = None) -> Decoder:
        how = Path(name).name.partition(".")[0]
        if how == "once" and not Path(name + ".met").exists():
            Path(name + ".met").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if how.startswith("SIG"):
            os.kill(os.getpid(), signal.Signals[how])
        if how == "null":
            ctypes.string_at(0)
        if how == "exit":
            os._exit(3)
        return opened(file, name, path)

    vars(files)["opened"] = opening
    return write_shard(task)


def marked(task: int) -> Iterator[int]:
    """Dies at item 2 of a task that is odd."""
    for item in range(4):
        pool.mark(item)
        if item == 2 and task % 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        yield item


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
