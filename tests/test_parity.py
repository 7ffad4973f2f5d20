"""Law 1: the number of processes does not change the result, and the comparison would show it if it did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from allears.parity import Difference, Steps, first_difference

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Command = Callable[..., subprocess.CompletedProcess[str]]

CONFORMER = (
    "model.encoder.kind=conformer",
    "model.encoder.heads=2",
    "model.encoder.dropout=0.1",
    "model.features.normalisation=global",
)
SPEED = "augment.speed=[0.9,1.0,1.1]"


def parity(command: Command, dataset: Path, out: Path, *given: str, fails: bool = False) -> dict[str, Any]:
    done = command("parity", "tiny", f"dataset={dataset}", *given, "--steps", 4, "--out", out, "--json", fails=fails)
    assert done.stderr.count(" are held out") == 1  # not once a world
    assert "try it" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.case("NeMo #13744")
def test_exact_has_the_same_bits_on_any_number_of_processes(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    """With dropout, speeds, SpecAugment, batch norm, clipping, statistics of the training audio."""
    found = parity(command, dataset, tmp_path, *small, *CONFORMER, SPEED, "optimizer.clip=1", "--world", "1,2,3,4")
    assert found == {"equal": True, "first_difference": None, "worlds": [1, 2, 3, 4], "steps": 4}
    weights = json.loads((tmp_path / "world-4" / "digests.jsonl").read_text().splitlines()[-1])["digests"]
    assert {"output.weight", "optimizer.output.weight.exp_avg_sq", "frontend.normalise.mean"} <= set(weights)
    assert any(name.endswith("running_mean") for name in weights)


@pytest.mark.case("transformers #40245")
def test_a_run_that_stops_in_mid_epoch_and_goes_on_elsewhere_has_the_same_bits(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    """On two processes, then on one and with more loader workers, into the next epoch; beside one that never stops."""
    rate = ("optimizer.learning_rate.schedule=constant", "optimizer.learning_rate.warmup=0")
    plain = (*rate, "training.digests=true", "training.average=false", SPEED)

    def train(run: str, steps: int, processes: int, workers: int) -> list[Any]:
        out = tmp_path / run
        more = (f"training.steps={steps}", f"loader.workers={workers}", "--processes", processes, "--out", out)
        command("train", "tiny", f"dataset={dataset}", *small, *plain, *more, ALLEARS_THREADS="1")
        return [json.loads(line) for line in (out / "digests.jsonl").read_text().splitlines()]

    whole = train("whole", 14, 1, 0)
    assert len(train("parted", 5, 2, 1)) == 5
    assert train("parted", 14, 1, 3) == whole
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
              if '"loss"' in line]  # fmt: skip
    assert epochs[4] == epochs[5] == 0  # the stop was in mid-epoch
    assert epochs[-1] == 1


def test_fast_has_not_and_the_first_difference_is_named(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    found = parity(command, dataset, tmp_path, *small, "training.reduction=fast", "--world", "1,4", fails=True)
    assert not found["equal"]
    assert found["first_difference"]["world"] == 4
    assert found["first_difference"]["step"] < 4
    assert found["first_difference"]["tensors"]


@pytest.mark.parametrize(("option", "value"), [("--world", "1"), ("--world", "one,two"), ("--steps", "0")])
def test_wrong_options_are_named(command: Command, dataset: Path, tmp_path: Path, option: str, value: str) -> None:
    done = command("parity", "tiny", f"dataset={dataset}", "--out", tmp_path, option, value, fails=True)
    assert option in done.stderr


def test_the_first_difference_is_that_of_the_first_step() -> None:
    one, two = {"a": "1", "b": "2"}, {"a": "1", "b": "3"}
    same = Steps([], [one, one, one])
    assert first_difference({1: same, 2: same}) is None
    assert first_difference({1: same, 2: Steps([], [one, one, two]), 4: Steps([], [one, two, two])}) == Difference(
        1, 4, ["b"]
    )
