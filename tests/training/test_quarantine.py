"""A micro-batch that is not finite is found, left out, kept; the rest is as if it had been empty."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from typer.testing import CliRunner

from allears.audit import audit
from allears.cli.main import app
from allears.errors import CheckpointError, DataError, TrainingError
from allears.loading.example import ExampleReader
from allears.models.ctc import CtcModel
from allears.replay import replay
from allears.run.settings import RunSettings
from allears.run.train import train
from allears.settings import build, overridden
from allears.training.checkpoint import checkpoints, load_position, read_tensors, write_tensors
from allears.types import Loss
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from typer.testing import Result

    from allears.types import Batch, Example

ALONE = World(0, 1, 0, 1, torch.device("cpu"))
MARK = 12345
"""A sample that stands nowhere else: the model of these tests chokes on it."""


@pytest.fixture
def trained(dataset: Path, small: Sequence[str]) -> Callable[..., dict[str, Any]]:
    def run(folder: Path, *given: str) -> dict[str, Any]:
        data = (f"train.dataset={dataset}", f"validation.dev.dataset={dataset}", "training.validate_hours=0.005")
        quiet = ("training.tensorboard=false", "training.average=false", "training.steps=6", "training.save_every=2")
        values = overridden({}, [*small, *data, *quiet, *given])
        return train(build(RunSettings, values, "test"), folder, ALONE)

    return run


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Utterances whose audio gets the mark in training; their loss is then not a number."""
    bad: set[int] = set()
    example, forward = ExampleReader.example, CtcModel.forward

    def marked(self: ExampleReader, utterance: int, epoch: int, into: Any = None) -> Example:
        one = example(self, utterance, epoch, into)
        if utterance in bad and self._spec_augment:  # the training's reader, not a validation's
            one.waveform[7] = MARK
        return one

    def choking(self: CtcModel, batch: Batch) -> Loss:
        loss = forward(self, batch)
        wrong = (batch.waveforms[:, 7] == MARK).any()
        return Loss({"ctc": torch.where(wrong, torch.nan, loss.sums["ctc"])}, loss.counts)

    monkeypatch.setattr(ExampleReader, "example", marked)
    monkeypatch.setattr(CtcModel, "forward", choking)
    return bad


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def member(run: Path, step: int, place: int) -> tuple[int, list[int]]:
    """An utterance of a micro-batch of a run, and all of them."""
    line = next(line for line in lines(run / "ledger" / "rank-0.jsonl") if line["step"] == step)
    return line["used"][str(place)][1], line["used"][str(place)]


@pytest.mark.case("NeMo #3825")
def test_the_guilty_one_is_named_kept_and_left_out_and_the_rest_goes_on(
    trained: Callable[..., object], spoiled: set[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "plain")
    guilty, batch = member(tmp_path / "plain", 3, 2)
    spoiled.add(guilty)
    run = tmp_path / "run"
    trained(run, "training.steps=20")
    (line,) = lines(run / "quarantine.jsonl")
    assert (line["step"], line["place"], line["utterances"]) == (3, 2, [guilty])
    assert line["first"] == "the loss"
    said = capsys.readouterr().err
    assert f"left out from now on: {line['ids'][0]}." in said
    kept = run / "quarantine" / "step-00000003-place-2"
    assert json.loads((kept / "guilty.json").read_text())["batch"] == batch
    assert (read_tensors(kept / "batch.safetensors")["waveforms"][:, 7] == MARK).any()
    assert (kept / "model.safetensors").exists()
    metrics = [one for one in lines(run / "metrics.jsonl") if "loss" in one]
    assert [one["step"] for one in metrics] == list(range(20))
    assert all(torch.isfinite(torch.tensor(one["loss"])) for one in metrics)
    assert metrics[3]["rejected"] == len(batch)
    assert sum(one["rejected"] for one in metrics) == len(batch) + 1  # in the second epoch it alone
    assert load_position(checkpoints(run)[-1]).quarantined == (guilty,)
    again = replay(run, kept.name)
    assert (again.first, again.weights) == ("the loss", "the weights it met")
    shutil.move(run / "checkpoints", tmp_path / "away")  # its own weights are kept
    assert replay(run, kept.name).first == again.first
    shutil.move(tmp_path / "away", run / "checkpoints")
    spoiled_model = read_tensors(kept / "model.safetensors")
    assert spoiled_model.keys() == read_tensors(checkpoints(run)[-1] / "model.safetensors").keys()
    done = CliRunner().invoke(app, ["inspect", "quarantine", str(run), "--json"], catch_exceptions=False)
    assert list(json.loads(done.stdout.splitlines()[-1])["quarantine"]) == [kept.name]
    with pytest.raises(CheckpointError, match=f"keeps no micro-batch 'x' in quarantine; it keeps {kept.name}"):
        replay(run, "x")
    found = audit(run)
    assert found.problems == []
    assert found.rejected == len(batch) + 1


@pytest.mark.case("NeMo #3825")
def test_the_step_is_that_of_a_run_in_which_the_micro_batch_is_empty(
    trained: Callable[..., object], spoiled: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "plain")
    guilty, batch = member(tmp_path / "plain", 3, 2)
    spoiled.add(guilty)
    trained(tmp_path / "run", "training.digests=true")
    spoiled.clear()
    collate_all = ExampleReader.example

    def unreadable(self: ExampleReader, utterance: int, epoch: int, into: Any = None) -> Example:
        from allears.errors import AudioError

        if utterance in batch and self._spec_augment:
            raise AudioError("unreadable", "it is not there.")
        return collate_all(self, utterance, epoch, into)

    monkeypatch.setattr(ExampleReader, "example", unreadable)
    trained(tmp_path / "empty", "training.digests=true")
    assert lines(tmp_path / "run" / "digests.jsonl") == lines(tmp_path / "empty" / "digests.jsonl")


def test_a_resumed_run_keeps_what_was_in_quarantine_then_and_forgets_what_came_later(
    trained: Callable[..., object], spoiled: set[int], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    trained(tmp_path / "plain")
    first, _ = member(tmp_path / "plain", 1, 0)
    second, _ = member(tmp_path / "plain", 5, 3)
    spoiled |= {first, second}
    trained(run)
    assert [line["utterances"] for line in lines(run / "quarantine.jsonl")] == [[first], [second]]
    shutil.rmtree(run / "checkpoints" / "step-00000006")  # as if it had been killed before the last save
    spoiled.discard(second)
    trained(run)
    assert [line["utterances"] for line in lines(run / "quarantine.jsonl")] == [[first]]
    assert load_position(checkpoints(run)[-1]).quarantined == (first,)


def test_what_is_damaged_in_quarantine_is_named_and_the_rest_is_listed(
    trained: Callable[..., object], spoiled: set[int], tmp_path: Path
) -> None:
    trained(tmp_path / "plain")
    spoiled |= {member(tmp_path / "plain", 1, 0)[0], member(tmp_path / "plain", 3, 3)[0]}
    trained(tmp_path / "run")
    first, second = sorted((tmp_path / "run" / "quarantine").iterdir())

    def inspected(*more: str) -> Result:
        return CliRunner().invoke(app, ["inspect", "quarantine", str(tmp_path / "run"), *more])

    whole = (second / "guilty.json").read_text()
    for damage, said in (("{}", "first must be given"), ("[]", "must be"), ("", "not readable JSON")):
        (second / "guilty.json").write_text(damage)
        listed = inspected()
        assert listed.exit_code == 0
        assert f"{first.name}: the loss was not finite" in listed.stdout
        assert f"note: {second} is damaged: " in listed.stderr
        assert said in listed.stderr
        with pytest.raises(DataError, match=r"is damaged: .*remove it"):
            replay(tmp_path / "run", second.name)
    (second / "guilty.json").write_text(whole)
    write_tensors({"waveforms": torch.zeros(2)}, second / "batch.safetensors")
    with pytest.raises(CheckpointError, match=r"batch.safetensors is damaged: it holds waveforms instead of"):
        replay(tmp_path / "run", second.name)


def test_too_many_stop_the_run(trained: Callable[..., object], spoiled: set[int], tmp_path: Path) -> None:
    trained(tmp_path / "plain")
    spoiled.update(member(tmp_path / "plain", step, 0)[0] for step in (1, 2, 3))
    with pytest.raises(
        TrainingError, match=r"2 utterances are in quarantine, more than training.most_quarantined \(1\)"
    ):
        trained(tmp_path / "run", "training.most_quarantined=1")


def test_when_nothing_of_a_step_is_finite_the_run_stops(
    trained: Callable[..., object], spoiled: set[int], tmp_path: Path
) -> None:
    trained(tmp_path / "plain")
    spoiled.update(member(tmp_path / "plain", 2, place)[0] for place in range(4))
    with pytest.raises(TrainingError, match=r"step 2: loss or gradient is not finite in any of its 4 micro-batches"):
        trained(tmp_path / "run")
