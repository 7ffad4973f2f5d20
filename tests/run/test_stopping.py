"""A training that a scheduler asks to stop: saved after the step, gone on with as if nothing had been."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from allears.audit import audit
from allears.training.checkpoint import checkpoints, load_position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import psutil
    from tests.forked import Forked

STEPS = 12
QUIET = ("training.validate_hours=0.005", "training.average=false", "training.tensorboard=false")


@pytest.fixture(scope="session")
def start(dataset: Path, small: Sequence[str], forked: Callable[..., Forked]) -> Callable[..., Forked]:
    given = [*small, f"dataset={dataset}", f"training.steps={STEPS}", "training.digests=true", *QUIET]

    def train(run: Path, *more: object) -> Forked:
        return forked("train", "tiny", *given, "--out", run, *more, ALLEARS_THREADS="1")

    return train


def digests(run: Path) -> list[dict[str, str]]:
    path = run / "digests.jsonl"
    return [json.loads(line)["digests"] for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(run: Path, steps: int) -> None:
    deadline = time.monotonic() + 60
    while len(digests(run)) < steps:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(start: Callable[..., Forked], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    start(run).wait()
    return run


@pytest.mark.case("EveryVoice #183")
@pytest.mark.parametrize(
    ("processes", "number", "left"), [(1, signal.SIGTERM, 75), (2, signal.SIGUSR1, 75), (1, signal.SIGINT, 130)]
)
def test_a_preempted_training_saves_and_goes_on(
    start: Callable[..., Forked], whole: Path, tmp_path: Path, processes: int, number: int, left: int
) -> None:
    run = tmp_path / "run"
    process = start(run, "--processes", processes)
    wait_for(run, 3)
    process.send_signal(number)
    code, said = process.wait(60), process.stderr.read_text()
    assert code == left, said
    step = load_position(checkpoints(run)[-1]).step
    assert len(digests(run)) == step < STEPS  # saved after the very step, nothing has to be done again
    assert f"asked to stop: saved before step {step} of {STEPS}; the same command goes on there" in said
    process = start(run, "--processes", processes)
    code, said = process.wait(), process.stderr.read_text()
    assert code == 0, said
    assert f"going on at step {step}" in said
    assert digests(run) == digests(whole)
    assert not audit(run).problems


@pytest.mark.case("speechbrain PR 2192")
def test_one_rank_that_is_asked_to_stop_stops_all_after_the_same_step(
    start: Callable[..., Forked], ranks: Callable[[int], list[psutil.Process]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start(run, "--processes", 2)
    wait_for(run, 3)
    ranks(process.pid)[1].send_signal(signal.SIGUSR1)
    assert process.wait(60) == 75, process.stderr.read_text()
    step = load_position(checkpoints(run)[-1]).step
    assert len(digests(run)) == step < STEPS
    assert not audit(run).problems


def test_a_signal_before_the_first_step_ends_at_once(start: Callable[..., Forked], tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    while process.poll() is None and not (tmp_path / "run" / ".lock").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 75
