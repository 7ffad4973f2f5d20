"""Trainings that are killed, stopped, or fail, and what `allears launch` makes of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from allears.audit import audit
from allears.training.checkpoint import checkpoints, load_position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RanksOf = Callable[[int], list[psutil.Process]]
QUIET = ("training.validate_hours=0.005", "training.average=false", "training.tensorboard=false")


class Launched:
    """``allears launch`` in the background."""

    def __init__(self, process: subprocess.Popen[str], run: Path, ranks_of: RanksOf) -> None:
        self.process = process
        self.ranks_of = ranks_of
        self.run = run

    def digests(self) -> list[dict[str, str]]:
        path = self.run / "digests.jsonl"
        return [json.loads(line)["digests"] for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def wait_for_steps(self, steps: int) -> None:
        self.wait_until(lambda: len(self.digests()) >= steps)

    def wait_until(self, reached: Callable[[], object]) -> None:
        deadline = time.monotonic() + 90
        while not reached():
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def ranks(self) -> list[psutil.Process]:
        return self.ranks_of(self.process.pid)

    def end(self) -> tuple[int, str]:
        """Exit code and what was said, within a minute and a half."""
        said = self.process.communicate(timeout=90)[1]
        return self.process.returncode, said


@pytest.fixture
def launched(dataset: Path, tmp_path: Path, ranks: RanksOf) -> Iterator[Callable[..., Launched]]:
    """Starts launches that are killed at the end of the test."""
    started: list[Launched] = []

    def start(*more: object, options: Sequence[str] = ("--processes", "2"), **environment: str) -> Launched:
        run = tmp_path / "run"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "allears", "launch", *options, "--", "train", "tiny", f"dataset={dataset}"),
                *(*map(str, more), "--out", str(run)),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1", "ALLEARS_THREADS": "1", **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(Launched(process, run, ranks))
        return started[-1]

    yield start
    for one in started:
        with one.process as process:
            process.kill()


def patched(folder: Path, body: str) -> str:
    """A folder for PYTHONPATH: ``body`` runs before each example is read; it knows ``rank`` and what was ``made``."""
    folder.mkdir(exist_ok=True)
    lines = [
        "import os, time",
        "from pathlib import Path",
        "from allears.loading.example import ExampleReader",
        "read, FOLDER, made = ExampleReader.example, Path(__file__).parent, []",
        "def example(self, utterance, epoch, into=None):",
        "    rank = os.environ.get('RANK')",
        "    made.append(utterance)",
        *(f"    {line}" for line in body.splitlines()),
        "    return read(self, utterance, epoch, into)",
        "ExampleReader.example = example",
    ]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return str(folder)


def test_killed_ranks_start_again_by_themselves_and_nothing_changes(
    launched: Callable[..., Launched], long: Sequence[str], uninterrupted: Path, tmp_path: Path
) -> None:
    training = launched(*long, *QUIET, PYTHONPATH=patched(tmp_path / "patch", "time.sleep(0.02)"))
    training.wait_for_steps(4)
    before, taken = training.ranks(), len(training.digests())
    before[1].kill()
    training.wait_until(lambda: len(training.ranks()) == 2 and training.ranks() != before)
    training.wait_for_steps(taken + 3)
    time.sleep(0.6)  # a rank says what it does each half second
    training.ranks()[0].send_signal(signal.SIGKILL)
    code, said = training.end()
    assert code == 0, said
    assert re.search(r"error: rank 1 on \S+ \(.*\): it was killed by SIGKILL", said)
    assert re.search(r"error: rank 0 on \S+ \(.*\): it was killed by SIGKILL", said)
    assert said.count("starting again from the newest checkpoint (1 of 3)") == 2  # the budget is full after progress
    assert training.digests() == [
        json.loads(line)["digests"] for line in (uninterrupted / "digests.jsonl").read_text().splitlines()
    ]
    assert not audit(training.run).problems
    assert "rank 1" in (training.run / "logs" / "launch.log").read_text()
    log = (training.run / "logs" / "rank-1.log").read_text()
    assert len(re.findall(r"^--- .* rank 1 of 2 on ", log, re.MULTILINE)) == 3


def test_the_first_thing_shown_is_the_failure_and_a_fault_that_stays_ends_it(
    launched: Callable[..., Launched], small: Sequence[str], tmp_path: Path
) -> None:
    """An exception in a loader's thread of one rank, in every attempt."""
    path = patched(tmp_path / "patch", "if rank == '1' and epoch == 1: raise OSError('the disk is on fire')")
    training = launched(
        *small, *QUIET, "training.steps=50", options=("--processes", "2", "--restarts", "1"), PYTHONPATH=path
    )
    code, said = training.end()
    assert code == 1
    assert said.count("Traceback") == 2, said
    assert "in example" in said.partition("error: rank 1")[0]  # its traceback
    assert re.search(r"error: rank 1 on \S+ \(step \d+, \w+.*\): unexpected OSError: the disk is on fire", said)
    assert "closed by peer" not in said
    assert re.search(r"not starting again: 1 restart without getting beyond step \d+", said)


@pytest.mark.case("lhotse #1459")
def test_a_rank_that_leaves_early_is_named(
    launched: Callable[..., Launched], small: Sequence[str], tmp_path: Path
) -> None:
    body = "if rank == '1' and len(made) > 20 and not (FOLDER / 'done').exists():\n    (FOLDER / 'done').touch()"
    path = patched(tmp_path / "patch", f"{body}\n    os._exit(0)")
    training = launched(*small, *QUIET, "training.steps=8", PYTHONPATH=path)
    code, said = training.end()
    assert code == 0, said
    assert re.search(r"error: rank 1 on \S+(?: \(.*\))?: it left with exit code 0 before the others", said), said


def test_a_rank_that_aborts_when_another_is_killed_is_not_the_cause(
    launched: Callable[..., Launched], small: Sequence[str]
) -> None:
    training = launched(
        *small, *QUIET, "training.steps=400", "training.digests=true", options=("--processes", "2", "--restarts", "0")
    )
    training.wait_for_steps(2)
    first, second = training.ranks()
    second.kill()
    first.send_signal(signal.SIGABRT)
    code, said = training.end()
    assert code == 1
    assert re.search(r"error: rank 1 on \S+ \(.*\): it was killed by SIGKILL", said), said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "nosuch"), "nosuch"),
        (("train", "tiny", "model.nosuch=3"), "model.nosuch"),
        (("train",), "Missing argument"),
        (("train", "tiny", "--processes", "2"), "--processes belongs to launch"),
        (("evaluate", "run"), "launch runs train, not evaluate"),
    ],
)
def test_a_wrong_command_is_said_once_and_not_started(
    command: Callable[..., subprocess.CompletedProcess[str]], arguments: Sequence[str], said: str
) -> None:
    done = command("launch", "--processes", 2, *arguments, fails=True)
    assert done.stderr.count(said) == 1
    assert "starting again" not in done.stderr


def test_a_signal_to_all_processes_at_once_saves(launched: Callable[..., Launched], small: Sequence[str]) -> None:
    training = launched(*small, *QUIET, "training.steps=400", "training.digests=true")
    training.wait_for_steps(3)
    launcher = psutil.Process(training.process.pid)
    for process in [*launcher.children(recursive=True), launcher]:
        process.send_signal(signal.SIGTERM)
    code, said = training.end()
    assert code == 75, said
    step = load_position(checkpoints(training.run)[-1]).step
    assert len(training.digests()) == step


def test_a_killed_fork_server_is_named_and_replaced(launched: Callable[..., Launched], small: Sequence[str]) -> None:
    training = launched(*small, *QUIET, "training.steps=20", "training.digests=true")
    training.wait_for_steps(2)
    server = training.ranks()[0].parent()
    assert server is not None
    server.kill()
    code, said = training.end()
    assert code == 0, said
    assert re.search(r"error: rank \d on \S+ \(.*\): it was lost with the process that ranks are forked from", said)


def test_a_stopped_rank_is_named_and_replaced(launched: Callable[..., Launched], small: Sequence[str]) -> None:
    training = launched(*small, *QUIET, "training.steps=30", "training.digests=true", "training.save_every=3")
    training.wait_for_steps(4)
    training.ranks()[1].send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    training.wait_until(lambda: len(training.digests()) > 6 or time.monotonic() > stopped + 30)
    assert time.monotonic() - stopped < 20
    code, said = training.end()
    assert code == 0, said
    assert re.search(r"error: rank 1 on \S+ .*stopped", said)


def test_when_nothing_moves_the_rank_that_does_not_wait_is_named_with_its_stacks(
    launched: Callable[..., Launched], small: Sequence[str], tmp_path: Path
) -> None:
    """A disk that does not answer."""
    path = patched(tmp_path / "patch", "if rank == '1' and epoch == 1: time.sleep(1000)")
    options = ("--processes", "2", "--restarts", "0", "--stall-seconds", "3")
    code, said = launched(*small, *QUIET, "training.steps=50", options=options, PYTHONPATH=path).end()
    assert code == 1
    stacks, _, rest = said.partition("error: rank 1")
    assert "in example" in stacks
    assert re.match(r" on \S+ \(step 10, data\): nothing has moved for \d s, and it does not wait for others", rest)
    assert re.search(r"^rank +host +phase +step +seconds +utterances$", rest, re.MULTILINE)
    assert re.search(r"^0 +\S+ +\w+ \(waits\) +10 ", rest, re.MULTILINE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_launch_that_is_asked_to_stop_saves(
    launched: Callable[..., Launched], small: Sequence[str], number: signal.Signals
) -> None:
    training = launched(*small, *QUIET, "training.steps=400", "training.digests=true")
    training.wait_for_steps(3)
    training.process.send_signal(number)
    code, said = training.end()
    assert code == {signal.SIGTERM: 75, signal.SIGINT: 130}[number], said
    step = load_position(checkpoints(training.run)[-1]).step
    assert len(training.digests()) == step
    assert f"asked to stop: saved before step {step} of 400" in said


def test_ctrl_c_twice_ends_at_once(launched: Callable[..., Launched], small: Sequence[str]) -> None:
    training = launched(*small, *QUIET, "training.steps=400", "training.digests=true")
    training.wait_for_steps(1)
    ranks = training.ranks()
    training.process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    training.process.send_signal(signal.SIGINT)
    assert training.end()[0] == 130
    assert not psutil.wait_procs(ranks, timeout=3)[1]


@pytest.mark.parametrize("seconds", [0.3, 1.5])
def test_a_signal_before_there_are_ranks_leaves_nothing_behind(
    launched: Callable[..., Launched], small: Sequence[str], seconds: float
) -> None:
    training = launched(*small)
    training.wait_until(lambda: signal.SIGTERM in caught(training.process.pid))
    time.sleep(seconds)
    below = psutil.Process(training.process.pid).children(recursive=True)
    training.process.terminate()
    code, said = training.end()
    assert code == 75, said
    assert not psutil.wait_procs(below, timeout=3)[1]


def caught(pid: int) -> set[int]:
    """Signals that a process catches."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_no_rank_outlives_a_killed_launcher(launched: Callable[..., Launched], small: Sequence[str]) -> None:
    training = launched(*small, *QUIET, "training.steps=400", "training.digests=true")
    training.wait_for_steps(1)
    below = psutil.Process(training.process.pid).children(recursive=True)
    assert len(below) >= 3
    training.process.kill()
    assert not psutil.wait_procs(below, timeout=3)[1]


def test_launchers_that_meet_go_on_when_one_is_lost(
    launched: Callable[..., Launched], small: Sequence[str], tmp_path: Path
) -> None:
    """Two machines, on this one."""
    with socket.create_server(("localhost", 0)) as free:
        options = ("--machines", "1:2", "--meet", f"localhost:{free.getsockname()[1]}")
    slowly = patched(tmp_path / "patch", "time.sleep(0.03)")
    one, other = (
        launched(
            *small,
            *QUIET,
            "training.steps=30",
            "training.save_every=2",
            "training.digests=true",
            options=options,
            PYTHONPATH=slowly,
        )
        for _ in range(2)
    )
    log = one.run / "logs" / "rank-1.log"
    one.wait_until(lambda: log.exists() and " of 2 on " in log.read_text())
    one.wait_for_steps(len(one.digests()) + 3)
    lost, left = (other, one) if serves(one, options[-1]) else (one, other)
    lost.process.kill()
    code, said = left.end()
    assert code == 0, said
    assert re.search(r"error: rank \d on \S+ \(.*\): it has lost a rank of another machine", said), said
    assert not audit(one.run).problems


def serves(launcher: Launched, meet: str) -> bool:
    """Whether it is the launcher at whose port they meet."""
    port = int(meet.rpartition(":")[2])
    found = psutil.Process(launcher.process.pid).net_connections("tcp")
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--processes", "0"), "--processes must be at least 1, not 0"),
        (("--restarts", "-1"), "--restarts must be 0 or more, not -1"),
        (("--machines", "two"), "--machines must be N or FEWEST:MOST, such as 2 or 1:4, not 'two'"),
        (("--machines", "3:2", "--meet", "a:1"), "--machines must be N or FEWEST:MOST, such as 2 or 1:4, not 3:2"),
        (("--machines", "2"), "--machines needs --meet HOST:PORT"),
        (("--meet", "here:1"), "--meet needs --machines"),
        (("--stall-seconds", "0"), "--stall-seconds must be above 0, such as 300, not 0"),
        (("--processes", "32"), "32 processes cannot share 4 micro-batches"),
        (("--machines", "2", "--meet", "here"), "--meet must be HOST:PORT, such as gpu1:29400, not here"),
        (("--machines", "2", "--meet", "no.such.host:1"), "--meet no.such.host:1: the host is not known here"),
    ],
)
def test_wrong_options_are_said(
    command: Callable[..., subprocess.CompletedProcess[str]], options: Sequence[str], said: str
) -> None:
    done = command("launch", *options, "--", "train", "tiny", fails=True)
    assert said in done.stderr
