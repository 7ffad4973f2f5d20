"""Worker processes that do tasks and send messages; none outlives its parent, and none dies unnoticed.

Each has a pipe of its own and gets a new task when it has done the last, so a killed worker is an end of file on its
pipe: noticed at once, never a wait. A worker marks which item of its task it is at, in memory that its parent shares,
so that an item which ends its process can be left out and the others done by another worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import traceback
from collections import deque
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from allears.errors import AllearsError, DatasetError
from allears.processes import tie_to

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

Task = TypeVar("Task")
Message = TypeVar("Message")

AGAIN = "run the same command again: it goes on where it was."

NOWHERE = -1
"""Where a worker is that is at no item."""


class _Mark:
    """The item that this process is at."""

    cell = ctypes.c_longlong(NOWHERE)


def mark(item: int) -> None:
    """Say that this worker is at ``item`` of its task, or `NOWHERE`."""
    _Mark.cell.value = item


class WorkerError(DatasetError):
    """A worker ended before its task.

    Attributes:
        item: which one of its task it was at, or `NOWHERE`.
        code: its exit code; of a signal, the negative number.
    """

    def __init__(self, task: str, item: int, code: int, again: str = AGAIN) -> None:
        self.item = item
        self.code = code
        if code == -signal.SIGKILL:
            cause = "was killed (SIGKILL), usually because memory ran out; use fewer --processes, and"
        elif code < 0:
            cause = f"was ended by {signal.Signals(-code).name}, perhaps by a library at a damaged file;"
        else:
            cause = f"ended with code {code};"
        super().__init__(f"A worker process at {task} {cause} {again}")


def run(
    function: Callable[[Task], Iterable[Message]],
    tasks: Sequence[Task],
    processes: int,
    spare: Callable[[Task, WorkerError], Task | None] = lambda _task, _death: None,
    again: str = AGAIN,
) -> Generator[tuple[int, Message], None, None]:
    """Call ``function`` on each task in spawned processes; yield (place of the task, message) as messages come.

    Where a worker dies, what ``spare`` makes of its task is given to a new one, from the start: messages come again.

    Args:
        function: at the top level of a module; what it yields is sent.
        tasks: given out in order; their ``str`` names them in an error.
        processes: how many at most.
        spare: the task that is left after a death; None where nothing can be done about it.
        again: what to do when a worker has been killed.

    Raises:
        DatasetError: a worker failed, or died and nothing can be done about it.
    """
    waiting = deque(enumerate(tasks))
    workers: list[_Worker[Task, Message]] = []
    try:
        for _ in range(min(processes, len(tasks))):
            workers.append(_Worker(function, again))
            workers[-1].give(*waiting.popleft())
        busy = {worker.pipe: worker for worker in workers}
        while busy:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]  # wait gives back what it got
                try:
                    kind, content = worker.receive()
                except WorkerError as death:
                    left = spare(worker.task, death)
                    if left is None:
                        raise
                    del busy[worker.pipe]
                    workers.append(_Worker(function, again))
                    workers[-1].give(worker.place, left)
                    busy[workers[-1].pipe] = workers[-1]
                    continue
                if kind == "message":
                    yield worker.place, content
                elif waiting:
                    worker.give(*waiting.popleft())
                else:
                    del busy[worker.pipe]
    finally:
        for worker in workers:
            worker.end()


class _Worker(Generic[Task, Message]):
    """One process as its parent sees it."""

    def __init__(self, function: Callable[[Task], Iterable[Message]], again: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.place = -1
        self._again = again
        self.task: Any = None
        self._at = context.RawValue(ctypes.c_longlong, NOWHERE)
        self._process = context.Process(target=_work, args=(function, other, os.getpid(), self._at), daemon=True)
        with _interrupts_held():
            self._process.start()
        other.close()

    def give(self, place: int, task: Task) -> None:
        self.place = place
        self.task = task
        self._at.value = NOWHERE
        try:
            self.pipe.send(task)
        except OSError as error:
            raise self._death() from error

    def receive(self) -> tuple[str, Any]:
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        if kind == "failed":
            raise DatasetError(content)
        return kind, content

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def _death(self) -> WorkerError:
        self._process.join()
        return WorkerError(str(self.task), self._at.value, self._process.exitcode or 0, self._again)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Start a process with SIGINT blocked, which it inherits: Ctrl-C while it imports would be a traceback."""
    resource_tracker.ensure_running()  # when it starts it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(function: Callable[[Any], Iterable[Any]], pipe: Connection, parent: int, at: ctypes.c_longlong) -> None:
    """The life of a worker."""
    _Mark.cell = at
    tie_to(parent)
    _quiet()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has gone
        while True:
            task = pipe.recv()
            try:
                for message in function(task):
                    pipe.send(("message", message))
                pipe.send(("done", None))
            except (BrokenPipeError, ConnectionResetError):
                return
            except AllearsError as error:
                pipe.send(("failed", str(error)))
            except OSError as error:
                pipe.send(("failed", f"A worker process could not go on: {error}; mend that and run it again."))
            except BaseException:  # noqa: BLE001 (its parent shows it; here nobody would see it)
                pipe.send(("failed", f"A worker process failed:\n{traceback.format_exc()}"))


def _quiet() -> None:
    """Keep what the audio libraries print from the terminal."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
