from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from allears.cluster.agreement import agree, versions
from allears.errors import SettingsError
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.forked import Forked


class Told(World):
    """A process that hears what others are said to have told."""

    def gather(self, value: Any) -> list[Any]:
        return [value, *others]


others: list[dict[str, str]] = []


def compare(mine: dict[str, Any], *theirs: dict[str, Any]) -> None:
    others[:] = [{name: repr(value) for name, value in one.items()} for one in theirs]
    agree(Told(0, 1 + len(theirs), 0, 1, torch.device("cpu")), mine)


def test_those_who_agree_go_on() -> None:
    agree(World(0, 1, 0, 1, torch.device("cpu")), versions())
    compare({"a": 1, "b": [0.5, None]}, {"a": 1, "b": [0.5, None]}, {"a": 1, "b": [0.5, None]})


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"a": 1, "b": "y"}, "b is 'x' on rank 0 and 'y' on rank 2"),
        ({"a": 1}, "b is 'x' on rank 0 and nothing on rank 2"),
        ({"a": 1, "b": "x", "c": 3}, "c is nothing on rank 0 and 3 on rank 2"),
    ],
)
def test_the_first_difference_is_named_with_both_values(theirs: dict[str, Any], said: str) -> None:
    mine = {"a": 1, "b": "x"}
    with pytest.raises(SettingsError, match=f"disagree: {said}; start all with the same"):
        compare(mine, mine, theirs)


def test_ranks_that_were_started_differently_all_end_and_say_why(
    forked: Callable[..., Forked], dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    """Two hosts with different commands, under a launcher that is not ours."""
    command = ("train", "tiny", f"dataset={dataset}", *small, "--out", tmp_path / "run", "training.steps=3")
    meeting = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "ALLEARS_RENDEZVOUS": f"file://{tmp_path / 'store'}"}
    ranks = [
        forked(*command, f"plan.micro_batches={size}", RANK=str(rank), LOCAL_RANK=str(rank), **meeting)
        for rank, size in enumerate((4, 8))
    ]
    for rank in ranks:
        assert rank.wait(100) == 1
        assert "plan.micro_batches is 4 on rank 0 and 8 on rank 1" in rank.stderr.read_text()
    assert not (tmp_path / "run" / "checkpoints").exists()
