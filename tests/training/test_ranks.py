"""One of two ranks meets what the other does not: both take the same branch, or end at once with its own words."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from allears.audit import audit
from allears.training.precision import SMALLEST

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Command = Callable[..., subprocess.CompletedProcess[str]]

CHOKING = """
import torch
from allears.models.ctc import CtcModel
from allears.types import Loss
forward = CtcModel.forward
def choking(self, batch):
    loss = forward(self, batch)
    return Loss({{"ctc": loss.sums["ctc"] * (torch.nan if {guilty} in batch.utterances else 1)}}, loss.counts)
CtcModel.forward = choking
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.case("pytorch/audio #3749")
@pytest.mark.case("NeMo #3825")
def test_a_loss_that_is_not_finite_on_one_rank_is_named_and_both_go_on_alike(
    as_ranks: Callable[..., list[tuple[int, str]]],
    dataset: Path,
    long: Sequence[str],
    uninterrupted: Path,
    tmp_path: Path,
) -> None:
    step = next(line for line in lines(uninterrupted / "ledger" / "rank-0.jsonl") if line["step"] == 3)
    guilty = step["used"]["3"][1]  # the last of four places: the second rank's
    given = (f"dataset={dataset}", *long, "training.steps=8")
    for size in (1, 2):
        run = tmp_path / f"world-{size}"
        ranks = as_ranks(
            tmp_path / f"store-{size}", CHOKING.format(guilty=guilty), "train", "tiny", *given, "--out", run, size=size
        )
        assert [code for code, _ in ranks] == [0] * size, ranks
        (found,) = lines(run / "quarantine.jsonl")
        assert (found["step"], found["place"], found["utterances"]) == (3, 3, [guilty])
        assert f"step 3, micro-batch 3: the loss is not finite; left out from now on: {found['ids'][0]}." in ranks[0][1]
        assert [line["step"] for line in lines(run / "metrics.jsonl") if "loss" in line] == list(range(8))
        assert audit(run).problems == []
        assert (run / "quarantine" / "step-00000003-place-3" / "batch.safetensors").exists()
    assert lines(tmp_path / "world-1" / "digests.jsonl") == lines(tmp_path / "world-2" / "digests.jsonl")


@pytest.mark.case("lhotse #1459")
def test_a_loader_that_fails_on_one_rank_ends_both_at_once_with_its_own_words(
    command: Command,
    make_dataset: Callable[..., Path],
    dataset: Path,
    small: Sequence[str],
    tmp_path: Path,
) -> None:
    other = make_dataset(tmp_path, 1)
    shutil.rmtree(other / "shards")
    sources = f"train=[{{dataset: {dataset}}}, {{dataset: {other}}}]"
    given = (*small, "training.steps=1000", "training.validate_every=1000", "loader.prefetch_steps=1")
    error = command("train", "tiny", sources, *given, "--out", tmp_path / "run", "--processes", 2, fails=True).stderr
    assert time.time() - (tmp_path / "run" / "metrics.jsonl").stat().st_mtime < 20
    last = error.splitlines()[-1]
    assert last.startswith("error: rank ")
    assert f"{other}/shards/00000.h5 cannot be opened" in last


@pytest.mark.case("OSUM #9")
@pytest.mark.case("lhotse #1442")
def test_seven_shards_on_two_ranks_give_each_utterance_to_one_of_them(
    command: Command, make_dataset: Callable[..., Path], small: Sequence[str], tmp_path: Path
) -> None:
    dataset = make_dataset(tmp_path, 260, words=(6, 10))
    assert len(list((dataset / "shards").iterdir())) == 7
    given = (*small, "plan.step_seconds=120", "training.epochs=1", "training.validate_hours=0.01", "loader.workers=2")
    command("train", "tiny", f"dataset={dataset}", *given, "--out", tmp_path / "run", "--processes", 2)
    found = audit(tmp_path / "run")
    assert found.problems == []
    assert (found.epochs, found.rejected) == (1, 0)
    ranks = [lines(tmp_path / "run" / "ledger" / f"rank-{rank}.jsonl") for rank in range(2)]
    heard = [{n for line in rank for used in line["used"].values() for n in used} for rank in ranks]
    assert not heard[0] & heard[1]
    assert len(heard[0] | heard[1]) == found.used


@pytest.mark.case("FunASR (source)")
def test_an_overflow_is_repeated_by_both_ranks(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    """A loss scale far too high: it is halved until the gradient is finite, by both, within the step."""
    given = (*small, "training.precision=fp16", "training.loss_scale=16777216", "training.steps=2")
    found = {}
    for size in (1, 2):
        run = tmp_path / f"world-{size}"
        more = ("training.digests=true", "training.average=false", "--processes", size)
        command("train", "tiny", f"dataset={dataset}", *given, *more, "--out", run)
        found[size] = [line for line in lines(run / "metrics.jsonl") if "loss" in line]
        assert not (run / "quarantine.jsonl").exists()
        assert audit(run).problems == []
        assert [line["applied"] for line in found[size]] == [1, 2]
    assert lines(tmp_path / "world-1" / "digests.jsonl") == lines(tmp_path / "world-2" / "digests.jsonl")
    scales = [line["loss_scale"] for line in found[2]]
    assert scales == [line["loss_scale"] for line in found[1]]
    assert SMALLEST < scales[0] < 2**24
