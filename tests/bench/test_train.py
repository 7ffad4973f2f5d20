"""What a step costs, measured in turns: a command end to end, the arithmetic on known times, wrong options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from allears.bench.train import costs

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Command = Callable[..., subprocess.CompletedProcess[str]]


def test_two_processes_take_the_same_steps_with_both_reductions(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    given = ("bench", "train", "tiny", f"dataset={dataset}", *small, "--out", tmp_path)
    done = command(*given, "--processes", "2", "--steps", 2, "--rounds", 3, "--json")
    *table, last = done.stdout.splitlines()
    exact, fast = json.loads(last)["rows"]
    assert (exact["reduction"], fast["reduction"]) == ("exact", "fast")
    for row in (exact, fast):
        assert (row["processes"], row["steps"]) == (2, 6)
        assert row["quartiles"][0] <= row["step_seconds"] <= row["quartiles"][1]
        assert row["seconds"].keys() == {"data", "compute", "communication", "other"}
        assert row["seconds"]["data"] == 0
        assert 0 < row["seconds"]["compute"] < row["quartiles"][1]
        assert row["seconds"]["communication"] > 0
        assert row["interval"][0] <= row["ratio"] <= row["interval"][1]
    assert (fast["ratio"], fast["interval"]) == (1.0, [1.0, 1.0])
    assert any("2 processes" in line and f"{exact['parameters']:,} parameters" in line for line in table)
    assert any("data wait (loaded ahead)" in line for line in table)


def test_a_reduction_is_compared_with_fast_step_by_step_over_all_ranks() -> None:
    """Steps of different lengths, and a machine that slows down: neither is in the ratio."""
    seconds = torch.zeros(2, 5, 2, 3, 5)  # two ranks, five rounds, two reductions, three steps
    slower = torch.arange(1.0, 6.0)[:, None, None] * torch.tensor([1.0, 2.0, 4.0])
    seconds[..., 1] = slower * torch.tensor([[1.0], [1.25]])
    seconds[..., 4] = 3.0
    fast, exact = costs(seconds, ["fast", "exact"])
    assert fast.ratio == 1.0
    assert exact.ratio == pytest.approx(1.25)
    assert exact.interval == pytest.approx((1.25, 1.25))
    assert (exact.steps, exact.cpu_seconds) == (15, 6.0)
    assert fast.step_seconds == fast.seconds["compute"] == 5.0
    seconds[1, ..., 2] = 10.0  # one of the two waits, so all do by half
    assert costs(seconds, ["fast", "exact"])[0].seconds["communication"] == 5.0


def test_without_fast_there_is_no_ratio() -> None:
    (alone,) = costs(torch.ones(1, 2, 1, 2, 5), ["exact"])
    assert (alone.step_seconds, alone.ratio, alone.interval) == (4.0, None, None)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--reduction", "exact,slow", "--reduction must be some of exact, fast"),
        ("--reduction", "fast,fast", "each once"),
        ("--processes", "2,8", "8 processes cannot share 4 micro-batches"),
        ("--processes", "0", "--processes must be at least 1, not 0"),
        ("--processes", "two", "--processes must be numbers"),
        ("--steps", "0", "--steps must be at least 1, not 0"),
        ("--rounds", "0", "--rounds must be at least 1, not 0"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path, option: str, value: str, said: str
) -> None:
    place = ("bench", "train", "tiny", f"dataset={dataset}", *small, "--out", tmp_path / "bench")
    error = command(*place, option, value, fails=True).stderr
    assert error.startswith("error: ")
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "bench").exists()
