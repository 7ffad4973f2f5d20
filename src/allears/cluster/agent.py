"""What starts the ranks of this machine, sees them fail, and starts them again: torch's elastic agent, with our ranks.

torch's `SimpleElasticAgent` is the engine of torchrun: who takes part, which ranks they get, when all start again. Ours
are how ranks start (`allears.cluster.forks`), how their failure is told (`allears.cluster.failure`), who watches them
(`allears.cluster.watch`), and three rules: an attempt that has failed is killed at once; the budget of restarts is full
again after progress; what would fail again is not started again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerGroup, WorkerState
from torch.distributed.elastic.multiprocessing import ProcessFailure

from allears import stores
from allears.cluster.failure import (
    FAILURES,
    Failure,
    cause,
    elsewhere,
    ended,
    from_elsewhere,
    out_of_memory_kills,
    reported,
    stacks_file,
)
from allears.cluster.forks import Forks, swept
from allears.cluster.logs import output_file
from allears.cluster.watch import Watch
from allears.processes import RENDEZVOUS, STALL
from allears.reporting import counted, say
from allears.stopping import SIGNALS, STOP, STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.distributed import TCPStore  # type: ignore[attr-defined]
    from torch.distributed.elastic.agent.server.api import WorkerSpec

LEAVING_SECONDS = 10.0
"""How long ranks may go on after the first one has left with success, before they are taken for stuck."""

SETTLING_SECONDS = 0.1
"""How long to wait, once a rank has failed, for the word or the exit code of the one that it followed from."""

ELSEWHERE_SECONDS = 1.0
"""How long to wait for the agent of another machine to say what has failed there."""

SILENT_SECONDS = 8.0
"""How long nothing at all may be heard from a rank that does not compute either."""

_ADDRESS, _FAILURE = "ranks' store", "failure"


class Agent(SimpleElasticAgent):
    """Runs ``allears ARGUMENTS`` on this machine's ranks until it has succeeded, was stopped, or cannot.

    Args:
        spec: how many ranks, where they meet, how many restarts.
        arguments: of the command.
        address: this machine's, at which other machines reach it.
        stall_seconds: how long nothing may move.
        code: the exit code after a signal.

    Attributes:
        attempts: how many have been started.
        asked: the signal that asked to stop; 0 while none has.
        stopped: whether ranks have stopped because they were asked to.
        failure: what ended the last attempt that failed.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        arguments: Sequence[str],
        address: str,
        stall_seconds: float,
        code: Callable[[int], int],
    ) -> None:
        super().__init__(spec)
        self._arguments = arguments
        self._code = code
        self._address = address
        self._stall_seconds = stall_seconds
        self._folder = tempfile.TemporaryDirectory(prefix="allears-")
        self.attempts = 0
        self._forks: Forks | None = None
        self._furthest = -1
        self.asked = 0
        self.stopped = False
        self.failure: Failure | None = None

    def ask(self, number: int) -> None:
        """Ask all ranks to stop, as signal ``number`` would; from any thread.

        Between two attempts nothing is lost by leaving at once, and so does whoever asks twice by Ctrl-C.
        """
        if self._forks is None or (self.asked and number == signal.SIGINT):
            self.kill()
            self._folder.cleanup()
            swept()
            os._exit(self._code(self.asked or number))
        self.asked = self.asked or number
        self._meeting.set(STOP, str(self.asked))  # for those of other machines too, within half a second
        if number in SIGNALS:
            self._forks.signal(number)  # at once

    def kill(self) -> None:
        """End this machine's ranks at once; from any thread."""
        if self._forks is not None:
            self._forks.end()
            self._forks = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start one attempt. Its store is a new one: it knows no address of ranks that are gone."""
        self.attempts += 1
        self._meeting = self._new_store(worker_group)
        self._attempt = Path(self._folder.name) / str(self.attempts)
        self._attempt.mkdir()
        self._kills = out_of_memory_kills()
        self._left_at: float | None = None
        environments = [
            {
                **os.environ,
                "RANK": str(worker.global_rank),
                "WORLD_SIZE": str(worker.world_size),
                "LOCAL_RANK": str(worker.local_rank),
                "LOCAL_WORLD_SIZE": str(len(worker_group.workers)),
                RENDEZVOUS: stores.address(self._meeting),
                STALL: str(self._stall_seconds),
                FAILURES: str(self._attempt),
            }
            for worker in worker_group.workers
        ]
        self._ranks = [worker.global_rank for worker in worker_group.workers]
        self._size = worker_group.workers[0].world_size
        outputs = [None if rank == 0 else output_file(self._attempt, rank) for rank in self._ranks]
        if self.asked:
            self._meeting.set(STOP, str(self.asked))
        self._forks = Forks(self._arguments, environments, outputs)
        pids = dict(zip(self._ranks, self._forks.pids, strict=True))
        self._watch = Watch(
            stores.connect(stores.address(self._meeting), 10.0), pids, self._size, self._stall_seconds, SILENT_SECONDS
        )
        return dict(enumerate(self._forks.pids))

    def _new_store(self, worker_group: WorkerGroup) -> TCPStore:
        """A store for one attempt, in the first machine's agent: it outlives any rank."""
        shared = cast("TCPStore", worker_group.store)
        if worker_group.group_rank == 0:
            store = stores.serve(self._address)
            shared.set(_ADDRESS, stores.address(store))
            return store
        return stores.connect(shared.get(_ADDRESS).decode(), 30.0)

    def _stop_workers(self, _: WorkerGroup) -> None:
        self.kill()

    def _shutdown(self, *_: Any, **__: Any) -> None:
        self.kill()

    def _monitor_workers(self, _: WorkerGroup) -> RunResult:
        """How the ranks of this machine are; what has failed is told here, and its attempt ended."""
        assert self._forks is not None
        codes = self._forks.codes()
        polite = {0, STOPPED, *([128 + self.asked] if self.asked else [])}
        if any(code in polite - {0} for code in codes):
            self._forks.end(LEAVING_SECONDS)  # all of them stop, or have lost those who have
            self.stopped = True
            return self._succeeded()
        if all(code == 0 for code in codes):
            return self._succeeded()
        if 0 in codes and self._left_at is None:
            self._left_at = time.monotonic()
        late = self._left_at is not None and time.monotonic() - self._left_at > LEAVING_SECONDS
        trouble, stacks = None, dict[int, str]()
        if late or any(code not in {None, 0} for code in codes):
            self.failure = self._cause(late)
        elif (trouble := self._watch.look()) is not None:
            stacks = self._stacks()
            self.failure = replace(trouble.failure, trace=stacks.pop(trouble.failure.rank, ""))
        else:
            return RunResult(WorkerState.HEALTHY)
        self._tell(self.failure)
        self.kill()
        if trouble is not None:
            say("\n".join([trouble.table, *(f"rank {rank}:\n{one}" for rank, one in stacks.items())]))
        return self._failed(self.failure)

    def _succeeded(self) -> RunResult:
        return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(self._ranks))

    def _failed(self, failure: Failure) -> RunResult:
        """Count, say what comes now, and let the engine do it."""
        heard = [pulse.step for pulse in self._watch.pulses() if pulse.step is not None]
        step = max([failure.step, *heard, *(one.step for one in reported(self._attempt))])
        if step > self._furthest:
            self._furthest, self._remaining_restarts = step, self._worker_group.spec.max_restarts
        if failure.final or self.asked:
            self._remaining_restarts = 0
        most = self._worker_group.spec.max_restarts
        if self._remaining_restarts:
            say(f"starting again from the newest checkpoint ({most - self._remaining_restarts + 1} of {most}).")
        elif most and not failure.final and not self.asked:
            where = f"getting beyond step {self._furthest}" if self._furthest >= 0 else "coming to a step"
            say(f"not starting again: {counted(most, 'restart')} without {where}.")
        process = ProcessFailure(0, 0, 1, "")
        return RunResult(WorkerState.FAILED, failures={self._ranks[0]: process})

    def _cause(self, late: bool) -> Failure:
        """The failure from which this attempt's end follows."""
        assert self._forks is not None
        until = time.monotonic() + SETTLING_SECONDS
        while True:
            found = reported(self._attempt)
            known = {failure.rank for failure in found}
            for rank, code in zip(self._ranks, self._forks.codes(), strict=True):
                # One that is gone without a word, or left while others wait for it, is why these have lost it.
                if rank not in known and (code not in {None, 0} or (code == 0 and late)):
                    found.append(self._ended(rank, code or 0))
            if any(not failure.caused for failure in found) or time.monotonic() > until:
                break
            time.sleep(0.01)
        first = cause(found)
        assert first is not None
        return (self._elsewhere() or self._early() or self._lost(first)) if first.caused else first

    def _ended(self, rank: int, code: int) -> Failure:
        memory = out_of_memory_kills() > self._kills
        return ended(rank, code, self._watch.pulse(rank), memory, self._written(rank)[-4000:])

    def _stacks(self) -> dict[int, str]:
        """The stacks of those ranks of this machine that can answer."""
        self._watch.stacks()
        files = {rank: stacks_file(self._attempt, rank) for rank in self._ranks}
        found = {rank: path.read_text(encoding="utf-8").rstrip() for rank, path in files.items() if path.exists()}
        return {rank: text for rank, text in found.items() if text}

    def _written(self, rank: int) -> str:
        """What a rank of this machine has written; nothing of the first one, which writes to the terminal."""
        log = output_file(self._attempt, rank)
        return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    def _early(self) -> Failure | None:
        """A rank of this machine that left with success while others still needed it."""
        assert self._forks is not None
        codes = dict(zip(self._ranks, self._forks.codes(), strict=True))
        return next((self._ended(rank, code) for rank, code in codes.items() if code == 0), None)

    def _elsewhere(self) -> Failure | None:
        """What the agent of another machine says is the cause; it may have seen it a moment later."""
        until = time.monotonic() + (ELSEWHERE_SECONDS if self._size > len(self._ranks) else 0.0)
        with contextlib.suppress(RuntimeError):
            while not self._meeting.check([_FAILURE]) and time.monotonic() < until:
                time.sleep(0.05)
            if self._meeting.check([_FAILURE]):
                return from_elsewhere(self._meeting.get(_FAILURE).decode())
        return None

    def _lost(self, first: Failure) -> Failure:
        """``first`` follows from a loss that nobody tells of: where there are other machines, it is one of them."""
        if self._size == len(self._ranks):
            return first
        message = "it has lost a rank of another machine, of which nothing is heard: that machine, or the way to it"
        return replace(first, message=f"{message}, is gone.", trace="")

    def _tell(self, failure: Failure) -> None:
        say(failure.told())
        if failure.rank in self._ranks and not failure.caused:
            with contextlib.suppress(RuntimeError):
                self._meeting.set(_FAILURE, elsewhere(failure))
