"""A training that a scheduler asks to stop: saved after the step, gone on with as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from allears.audit import audit
from allears.training.checkpoint import checkpoints, load_position

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STEPS = 12
QUIET = ("training.validate_hours=0.005", "training.average=false", "training.tensorboard=false")


def start(dataset: Path, run: Path, small: Sequence[str], *more: str) -> subprocess.Popen[str]:
    given = [
        *small,
        f"dataset={dataset}",
        f"training.steps={STEPS}",
        "training.digests=true",
        *QUIET,
        "--out",
        str(run),
        *more,
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "allears", "train", "tiny", *given],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ALLEARS_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def digests(run: Path) -> list[dict[str, str]]:
    path = run / "digests.jsonl"
    return [json.loads(line)["digests"] for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(run: Path, steps: int) -> None:
    deadline = time.monotonic() + 60
    while len(digests(run)) < steps:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(dataset: Path, small: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    with start(dataset, run, small) as process:
        process.communicate()
    return run


@pytest.mark.case("EveryVoice #183")
@pytest.mark.parametrize(("processes", "number"), [("1", signal.SIGTERM), ("2", signal.SIGUSR1)])
def test_a_preempted_training_saves_and_goes_on(
    dataset: Path, small: Sequence[str], whole: Path, tmp_path: Path, processes: str, number: int
) -> None:
    run = tmp_path / "run"
    with start(dataset, run, small, "--processes", processes) as process:
        wait_for(run, 3)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 75, said
    step = load_position(checkpoints(run)[-1]).step
    assert len(digests(run)) == step < STEPS  # saved after the very step, nothing has to be done again
    assert f"asked to stop: saved before step {step} of {STEPS}; the same command goes on there" in said
    with start(dataset, run, small, "--processes", processes) as process:
        said = process.communicate()[1]
    assert process.returncode == 0, said
    assert f"going on at step {step}" in said
    assert digests(run) == digests(whole)
    assert not audit(run).problems


@pytest.mark.case("speechbrain PR 2192")
def test_one_rank_that_is_asked_to_stop_stops_all_after_the_same_step(
    dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with start(dataset, run, small, "--processes", "2") as process:
        wait_for(run, 3)
        psutil.Process(process.pid).children()[1].send_signal(signal.SIGUSR1)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 75, said
    step = load_position(checkpoints(run)[-1]).step
    assert len(digests(run)) == step < STEPS
    assert not audit(run).problems


def test_a_signal_before_the_first_step_ends_at_once(dataset: Path, small: Sequence[str], tmp_path: Path) -> None:
    with start(dataset, tmp_path / "run", small) as process:
        while process.poll() is None and not (tmp_path / "run" / ".lock").exists():
            time.sleep(0.01)
        process.terminate()
        process.communicate(timeout=10)
    assert process.returncode in {143, 75}  # 75 where the first step had been begun
