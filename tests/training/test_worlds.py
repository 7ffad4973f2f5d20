"""Real trainings in real processes: worlds that agree, resume after kill -9, and failures that are named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from allears.training.checkpoint import checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Background = Callable[..., Any]
    Ranks = Callable[[int], list[psutil.Process]]
    Command = Callable[..., subprocess.CompletedProcess[str]]


def losses(run: Path) -> dict[int, float]:
    """Loss of each step in a run's metrics."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def train(command: Command, dataset: Path, run: Path, *more: object, **how: Any) -> dict[str, Any]:
    done = command("train", "tiny", f"dataset={dataset}", "--out", run, "--json", *more, **how)
    return json.loads(done.stdout.splitlines()[-1]) if not how.get("fails") else {"stderr": done.stderr}


@pytest.fixture(scope="module")
def alone(command: Command, dataset: Path, small: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve steps on one process, never stopped."""
    run = tmp_path_factory.mktemp("alone") / "run"
    outcome = train(command, dataset, run, *small, "training.steps=12", "training.save_every=5")
    assert outcome["step"] == 12
    assert set(outcome["validation"]["held_out"]) == {"wer", "cer", "mer"}
    return run


def test_torchrun_starts_the_same_training(dataset: Path, small: Sequence[str], alone: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "allears"]
    overrides = [*small, "training.steps=4", "optimizer.learning_rate.schedule=constant"]
    done = subprocess.run(
        [*launcher, "train", "tiny", f"dataset={dataset}", "--out", str(tmp_path / "run"), "--json", *overrides],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["processes"] == 2
    assert losses(tmp_path / "run")[0] == pytest.approx(losses(alone)[0], rel=1e-4)


@pytest.mark.case("accelerate PR 4071")
def test_killed_in_mid_epoch_a_run_goes_on_with_the_loss_of_the_uninterrupted_one(
    background: Background, command: Command, dataset: Path, small: Sequence[str], alone: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    overrides = [*small, "training.steps=12", "training.save_every=5"]
    with background(dataset, run, *overrides) as training:
        training.wait_until(lambda: checkpoints(run) and training.steps() >= 7)
    newest = int(checkpoints(run)[-1].name.removeprefix("step-"))
    assert newest in {5, 10}
    again = command("train", "tiny", f"dataset={dataset}", "--out", run, *overrides)
    assert f"going on at step {newest}\n" in again.stderr
    assert losses(run) == losses(alone)


def test_a_finished_run_says_so_and_does_nothing(
    command: Command, dataset: Path, small: Sequence[str], alone: Path
) -> None:
    before = (alone / "metrics.jsonl").read_bytes()
    again = command("train", "tiny", f"dataset={dataset}", "--out", alone, *small, "training.steps=12")
    assert "complete already" in again.stderr
    assert (alone / "metrics.jsonl").read_bytes() == before


@pytest.mark.case("lhotse #1459")
def test_a_killed_rank_is_named_and_takes_all_with_it(
    background: Background, ranks: Ranks, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with background(dataset, run, *small, "training.steps=10000", "--processes", "2") as training:
        training.wait_for_steps(2)
        below = ranks(training.process.pid)
        assert len(below) == 2
        below[1].kill()
        began = time.monotonic()
        assert training.process.wait(timeout=30) == 1
        assert time.monotonic() - began < 10
    last = training.said().splitlines()[-1]
    assert "rank 1" in last
    assert "SIGKILL" in last
    assert not psutil.wait_procs(below, timeout=3)[1]


def test_ranks_do_not_outlive_the_command_that_started_them(
    background: Background, ranks: Ranks, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with background(dataset, run, *small, "training.steps=10000", "--processes", "2") as training:
        training.wait_for_steps(2)
        below = ranks(training.process.pid)
    assert not psutil.wait_procs(below, timeout=10)[1]


def test_a_loss_that_is_not_finite_stops_all_ranks_and_names_the_utterances(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    overrides = [*small, "training.steps=20", "optimizer.learning_rate.value=1e25", "optimizer.learning_rate.warmup=0"]
    error = train(command, dataset, tmp_path / "run", *overrides, "--processes", 2, fails=True)["stderr"]
    last = error.splitlines()[-1]
    assert "finite" in last
    assert "step" in last
    assert "optimizer.learning_rate.value" in last


@pytest.mark.case("wenet #842")
@pytest.mark.case("kaldi #4346")
def test_a_dataset_of_one_utterance_trains_on_two_processes(
    command: Command, make_dataset: Callable[..., Path], small: Sequence[str], tmp_path: Path
) -> None:
    """In each step, and in each validation, one of them has nothing to do."""
    dataset = make_dataset(tmp_path, 1)
    given = (*small, f"validation.one.dataset={dataset}", "training.steps=3", "training.validate_every=1")
    outcome = train(command, dataset, tmp_path / "run", *given, "--processes", 2)
    assert outcome["step"] == 3
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "validation" in line] == [0, 1, 2]
    assert {line["utterances"] for line in lines if "loss" in line} == {1}
    assert all(0 < loss < 1e3 for loss in losses(tmp_path / "run").values())


def test_a_run_that_is_being_trained_in_is_refused(
    background: Background, command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    with background(dataset, tmp_path / "run", *small, "training.steps=10000") as training:
        training.wait_for_steps(1)
        refused = command("train", "tiny", f"dataset={dataset}", "--out", tmp_path / "run", *small, fails=True)
    assert "another process is training there" in refused.stderr
