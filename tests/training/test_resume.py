"""Killed at any moment and started again, on any number of processes: as if nothing had happened."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from allears.files import PARTIAL
from allears.run.recognise import load
from allears.training.checkpoint import checkpoints
from allears.world import World

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Background = Callable[..., Any]
    Command = Callable[..., subprocess.CompletedProcess[str]]

ALONE = World(0, 1, 0, 1, torch.device("cpu"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def differing(run: Path, other: Path) -> list[tuple[int, list[str]]]:
    """After which steps which tensors of two runs have other bits."""
    pairs = list(zip(lines(run / "digests.jsonl"), lines(other / "digests.jsonl"), strict=True))
    assert [line["step"] for line, _ in pairs] == list(range(25))
    assert "optimizer.output.weight.exp_avg" in pairs[0][0]["digests"]
    found = []
    for line, wanted in pairs:
        mine, theirs = line["digests"], wanted["digests"]
        found.append((line["step"], [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]))
    return [(step, names) for step, names in found if names]


@pytest.mark.case("transformers #40245")
def test_other_numbers_of_processes_go_on_to_the_same_bits(resized: Path, uninterrupted: Path) -> None:
    assert differing(resized, uninterrupted) == []


@pytest.mark.case("accelerate PR 4071")
@pytest.mark.case("wenet #1840")
def test_each_step_after_a_kill_is_the_next_of_the_plan(resized: Path, uninterrupted: Path) -> None:
    """Its utterances, loss, gradient and learning rate are those of the run that was never stopped."""
    same = ("step", "applied", "epoch", "loss", "grad_norm", "learning_rate", "utterances", "tokens", "audio_seconds")
    found, wanted = (
        [{name: line[name] for name in same} for line in lines(run / "metrics.jsonl") if "loss" in line]
        for run in (resized, uninterrupted)
    )
    assert found == wanted
    assert len({line["learning_rate"] for line in found}) > 20


@pytest.mark.case("transformers #15107")
def test_validations_on_the_way_do_not_depend_on_the_number_of_processes(resized: Path, uninterrupted: Path) -> None:
    found, wanted = (
        [line for line in lines(run / "metrics.jsonl") if "validation" in line] for run in (resized, uninterrupted)
    )
    assert found == wanted
    assert [line["step"] for line in found] == [9, 19, 24]


def halves(run: Path) -> list[str]:
    return [path.name for path in (run / "checkpoints").glob(f"*{PARTIAL}")]


@pytest.mark.case("Lightning #688")
def test_killed_while_saving_the_newest_whole_checkpoint_loads_and_the_half_one_is_removed(
    background: Background, command: Command, dataset: Path, long: Sequence[str], uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    given = (*long, "training.save_every=1", "training.keep=2")
    draw = random.Random(1)
    begun: list[list[str]] = []
    before = 0
    for _ in range(3):
        with background(dataset, run, *given) as training:
            training.wait_until(lambda: len(found := checkpoints(run)) > 0 and number(found[-1]) > before)  # noqa: B023
            training.wait_until(lambda: halves(run), pause=0)
            time.sleep(draw.uniform(0, 0.005))
        said = training.said()
        assert ("going on" in said) == bool(before)
        assert not before or f"going on at step {before}\n" in said
        before = number(checkpoints(run)[-1])
        begun.append(halves(run))
    assert any(begun), "no kill came while a checkpoint was written"
    assert f"going on at step {before}\n" in command("train", "tiny", f"dataset={dataset}", "--out", run, *given).stderr
    assert halves(run) == []
    assert differing(run, uninterrupted) == []


def number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


@pytest.mark.case("Lightning #688")
def test_a_checkpoint_that_is_removed_while_somebody_reads_it_is_not_missed(
    background: Background, command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    given = ("training.steps=100000", "training.save_every=1", "training.keep=1", "training.keep_best=0")
    with background(dataset, run, *small, *given) as training:
        training.wait_until(lambda: checkpoints(run))
        read: set[Path] = set()
        while len(read) < 20:
            read.add(load(run, ALONE)[2])
        command("evaluate", run, dataset, "--processes", 2)
