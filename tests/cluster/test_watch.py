"""Stuck ranks: real processes, stopped, asleep, or held by something, are told apart and named."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from allears import stores
from allears.cluster.watch import Trouble, Watch
from allears.stopping import STOP
from allears.watching import Pulse, pulse_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import ForkServerProcess

HERE = Path(__file__).parent
LONG = 60.0  # seconds: not in this test


class Ranks:
    """Ranks that a store serves; ``watch`` is ready for them once all have been heard."""

    def __init__(self, folder: Path, tasks: Any) -> None:
        self.store = stores.serve("localhost")
        self.folder = folder
        self.tasks = tasks
        self.processes: list[ForkServerProcess] = []

    def start(self, *doing: str, size: int | None = None, stall: float = LONG, silent: float = LONG) -> Watch:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["allears.stores", "allears.watching"])
        at = stores.address(self.store)
        for rank, what in enumerate(doing):
            log = str(self.folder / f"rank-{rank}.log")
            self.processes.append(context.Process(target=self.tasks.be, args=(rank, at, log, what)))
            self.processes[-1].start()
        pids = {rank: process.pid or 0 for rank, process in enumerate(self.processes)}
        watch = Watch(stores.connect(at, 10.0), pids, size or len(doing), stall, silent)
        until(lambda: watch.look() or len(watch.pulses()) == len(doing))
        self.store.set("go", "")
        return watch

    def log(self, rank: int) -> str:
        return (self.folder / f"rank-{rank}.log").read_text()


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.syspath_prepend(str(HERE))
    made = Ranks(tmp_path, importlib.import_module("watch_tasks"))
    yield made
    for process in made.processes:
        process.kill()
        process.join()


def until(reached: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := reached()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def found(watch: Watch, seconds: float = 20.0) -> Trouble:
    trouble = until(watch.look, seconds)
    assert isinstance(trouble, Trouble)
    return trouble


def nothing(watch: Watch, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert watch.look() is None
        time.sleep(0.02)


def test_a_stopped_rank_is_named(ranks: Ranks) -> None:
    watch = ranks.start("move", "move", silent=1.0)
    nothing(watch, 1.5)
    pid = ranks.processes[1].pid or 0
    os.kill(pid, signal.SIGSTOP)
    failure = found(watch).failure
    assert failure.rank == 1
    why = r"nothing has been heard of it for \d s: it is stopped by a signal \(SIGSTOP or SIGTSTP\)\."
    assert re.fullmatch(why, failure.message)
    assert failure.where == "step 14, forward"
    began = time.monotonic()
    watch.stacks()
    assert time.monotonic() - began < 1
    assert "in move" in ranks.log(0)
    assert not ranks.log(1)


def test_a_rank_whose_interpreter_is_held_is_silent_only_if_it_does_not_compute(ranks: Ranks) -> None:
    watch = ranks.start("compute", "hold", silent=1.5)
    failure = found(watch).failure
    assert failure.rank == 1
    assert "it does not compute either, so something holds its interpreter" in failure.message
    watch.stacks()
    for rank, what in enumerate(("compute", "hold")):
        assert f"in {what}" in ranks.log(rank), "stacks need no lock"


def test_who_stalls_the_others_is_named(ranks: Ranks) -> None:
    watch = ranks.start("wait", "sleep", "wait", stall=1.5)
    trouble = found(watch)
    failure = trouble.failure
    assert (failure.rank, failure.where) == (1, "step 14, forward, utterances u1, u7")
    assert re.match(r"nothing has moved for \d s, and it does not wait for others; ", failure.message)
    header, *rows = [line.split() for line in trouble.table.splitlines()]
    assert header == ["rank", "host", "phase", "step", "seconds", "utterances"]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[2:4] for row in rows] == [["forward", "(waits)"], ["forward", "14"], ["forward", "(waits)"]]
    watch.stacks()
    assert "in sleep" in ranks.log(1)


def test_several_that_stall_all_that_wait_and_one_that_never_came(ranks: Ranks) -> None:
    """Pulses as ranks of other machines would leave them."""

    def said(size: int, waiting: tuple[bool, ...]) -> str:
        for rank, waits in enumerate(waiting):
            pulse = Pulse(rank, f"node{rank}", 1, "reduce", 3, 1, 10.0 + rank, waits)
            ranks.store.set(pulse_key(rank), pulse.json())
        watch = Watch(stores.connect(stores.address(ranks.store), 10.0), {}, size, 0.4)
        return re.sub(r"for \d s", "for 1 s", found(watch).failure.told())

    rank, long = "rank 2 on node2 (step 3, reduce)", "nothing has moved for 1 s, and"
    assert f"{rank}: {long} it does not wait for others, nor do ranks 1, 0;" in said(3, (False, False, False))
    assert f"{rank}: {long} all ranks wait for one another;" in said(3, (True, True, True))
    assert f"rank 3 on its machine: {long} it has not been heard of;" in said(4, (True, True, True))


def test_one_rank_that_moves_is_enough(ranks: Ranks) -> None:
    watch = ranks.start("sleep", "move", stall=1.0)
    nothing(watch, 2.0)


def test_the_time_in_which_the_watch_itself_was_stopped_does_not_count(ranks: Ranks) -> None:
    watch = ranks.start("sleep", stall=1.5, silent=1.5)
    os.kill(ranks.processes[0].pid or 0, signal.SIGSTOP)
    time.sleep(1.7)
    assert watch.look() is None


def test_ranks_are_asked_to_stop_through_the_store(ranks: Ranks) -> None:
    ranks.start("leave_when_asked")
    ranks.store.set(STOP, str(int(signal.SIGUSR1)))
    ranks.processes[0].join(10)
    assert ranks.processes[0].exitcode == signal.SIGUSR1


def test_when_the_store_is_gone_the_rank_goes_on_and_nobody_blames_it(ranks: Ranks) -> None:
    watch = ranks.start("leave_when_unheard", silent=0.3, stall=0.3)
    del ranks.store
    nothing(watch, 1.0)
    ranks.processes[0].join(10)
    assert ranks.processes[0].exitcode == 0
