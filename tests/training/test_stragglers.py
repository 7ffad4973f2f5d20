"""Slow ranks are named by what they are slow at; a larger share of the micro-batches is no fault."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, TypeVar

import pytest
import torch

from allears.training.exchange import Spent
from allears.training.stragglers import QUIET, WINDOW, Stragglers
from allears.types import Slowest
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

DELAYED = """
import time
import allears.training.stragglers as stragglers
stragglers.WINDOW = 3
if os.environ["RANK"] == "1":
    from allears.models.ctc import CtcModel
    forward = CtcModel.forward
    CtcModel.forward = lambda self, batch: (time.sleep(0.3), forward(self, batch))[1]
else:
    from allears.loading.loader import Loader
    made = Loader._micro_batch
    Loader._micro_batch = lambda *given: (time.sleep(0.3), made(*given))[1]
"""


class Many(World):
    """Ranks of machines that are called after them."""

    def gather(self, _: T) -> list[T]:
        return [f"node{rank}" for rank in range(self.size)]  # type: ignore[misc]


def looked(size: int, *seconds: tuple[float, float], micro_batches: int = 4, steps: int = WINDOW) -> list[str]:
    """What is said when each rank takes so many seconds for the data and the computing of each micro-batch."""
    stragglers = Stragglers(Many(0, size, 0, size, torch.device("cpu")), micro_batches)
    said = []
    for step in range(steps):
        spent = [Spent(True, 0.0, 0.0)] * micro_batches
        for leaf, (data, compute) in zip(stragglers._leaves, seconds, strict=True):
            spent[leaf.start] = Spent(True, data * len(leaf), compute * len(leaf))
        stragglers.add(spent)
        said += stragglers.notes(step, 1.0)
    return said


def test_a_rank_that_computes_slowly_is_named() -> None:
    (said,) = looked(4, (0.0, 0.14), (0.0, 0.15), (0.0, 0.31), (0.0, 0.12))
    assert said == (
        "note: rank 2 (node2) is slow: over the last 50 steps its compute takes 0.31 s a step where the others' median "
        "is 0.14 s, and all wait for it; see what else runs there, and whether its processor or GPU is throttled."
    )


def test_one_that_waits_for_data_is_named_although_the_others_do_not_at_all() -> None:
    (said,) = looked(2, (0.0, 0.2), (0.1, 0.2))
    assert "rank 1 (node1) is slow: over the last 50 steps its wait for data takes 0.20 s a step where" in said
    assert "median is 0.00 s, and all wait for it; give it more loader.workers" in said


@pytest.mark.parametrize(
    "seconds",
    [
        ((0.0, 0.2), (0.0, 0.2), (0.0, 0.2)),  # of four micro-batches, one rank has two: it takes 0.4 s by plan
        ((0.0, 0.2), (0.0, 0.29), (0.0, 0.2)),  # less than half as much again
        ((0.0, 0.02), (0.0, 0.06), (0.0, 0.02)),  # three times as long, and hardly matters in a step of 1 s
    ],
)
def test_these_are_not(seconds: tuple[tuple[float, float], ...]) -> None:
    assert looked(3, *seconds) == []


def test_the_same_rank_is_not_named_again_soon() -> None:
    slow = ((0.0, 0.1), (0.0, 0.3))
    assert len(looked(2, *slow, steps=WINDOW + QUIET - 1)) == 1
    assert len(looked(2, *slow, steps=WINDOW + QUIET)) == 2


def test_a_lone_rank_waits_for_nobody() -> None:
    assert looked(1, (1.0, 1.0)) == []


def test_the_slowest_of_a_step_is_known() -> None:
    stragglers = Stragglers(Many(0, 2, 0, 2, torch.device("cpu")), 2)
    assert stragglers.add([Spent(True, 0.1, 0.2), Spent(False, 0.3, 0.1)]) == Slowest(1, 0.4)


def test_slow_ranks_of_a_training_are_named(
    as_ranks: Callable[..., list[tuple[int, str]]], dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    """The first is slow to read, the second to compute."""
    more = ("loader.workers=0", "training.steps=3", "training.average=false", "training.tensorboard=false")
    given = ("train", "tiny", f"dataset={dataset}", *small, *more)
    ranks = as_ranks(tmp_path / "store", DELAYED, *given, "--out", tmp_path / "run")
    assert [code for code, _ in ranks] == [0, 0], ranks
    said, host = ranks[0][1], socket.gethostname()
    assert f"note: rank 0 ({host}) is slow: over the last 3 steps its wait for data takes 0." in said
    assert f"note: rank 1 ({host}) is slow: over the last 3 steps its compute takes 0." in said
    assert "is slow" not in ranks[1][1]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    slowest = [line["slowest"] for line in lines if "loss" in line]
    assert all(one["rank"] in {0, 1} and one["seconds"] > 0.6 for one in slowest), slowest
