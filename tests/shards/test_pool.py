"""Worker processes: none outlives its parent, none dies unnoticed."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from allears.errors import DatasetError
from allears.shards import pool

HERE = Path(__file__).parent


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("pool_tasks")


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_all_messages_come_with_their_task(tasks: Any, processes: int) -> None:
    found = list(pool.run(tasks.squares, [3, 4, 5], processes))
    assert sorted(found) == [(0, 3), (0, 9), (1, 4), (1, 16), (2, 5), (2, 25)]


def test_no_tasks(tasks: Any) -> None:
    assert list(pool.run(tasks.squares, [], 2)) == []


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGKILL, "memory ran out; use fewer --processes"), (signal.SIGSEGV, "SIGSEGV")]
)
def test_a_worker_that_dies_is_an_error_at_once(tasks: Any, number: int, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(DatasetError, match=words):
        list(pool.run(tasks.die, [number], 2))
    assert time.monotonic() - began < 20


def test_a_death_tells_where_it_was_and_another_worker_goes_on(tasks: Any) -> None:
    deaths: list[tuple[int, int, int]] = []

    def even(task: int, death: pool.WorkerError) -> int:
        deaths.append((task, death.item, death.code))
        return task + 1

    found = list(pool.run(tasks.marked, [2, 3, 4, 5], 2, even))
    assert sorted(deaths) == [(3, 2, -signal.SIGSEGV), (5, 2, -signal.SIGSEGV)]
    assert [item for place, item in found if place == 0] == [0, 1, 2, 3]
    assert [item for place, item in found if place == 3] == [0, 1, 0, 1, 2, 3]


def test_a_death_about_which_nothing_can_be_done(tasks: Any) -> None:
    with pytest.raises(pool.WorkerError, match="SIGSEGV"):
        list(pool.run(tasks.marked, [2, 3], 2, lambda _task, _death: None))


@pytest.mark.parametrize(
    ("task", "words"), [("sentence", "^Something is wrong; mend it.$"), ("disk", "No space"), ("bug", "ZeroDivision")]
)
def test_a_worker_that_fails_says_why(tasks: Any, task: str, words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        list(pool.run(tasks.fail, [task], 1))


def test_what_libraries_print_stays_off_the_terminal(tasks: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert list(pool.run(tasks.noisy, [1], 1)) == [(0, 1)]
    assert capfd.readouterr() == ("", "")


def test_leaving_early_ends_the_workers(tasks: Any) -> None:
    messages = pool.run(tasks.sleepy, [0, 1], 2)
    with contextlib.closing(messages):
        pids = [next(messages)[1], next(messages)[1]]
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_workers_die_with_a_parent_that_is_killed() -> None:
    code = (
        "import pool_tasks\n"
        "from allears.shards import pool\n"
        "for _, pid in pool.run(pool_tasks.sleepy, [0, 1], 2): print(pid, flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
        parent.wait()
        end = time.monotonic() + 5
        while any(_alive(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
