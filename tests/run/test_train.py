"""What a training does beside its steps: precisions, checkpoints that are kept, averages, weights from elsewhere."""

from __future__ import annotations

import json
import math
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from allears.audit import audit
from allears.errors import CheckpointError, SettingsError, TrainingError
from allears.models.ctc import CtcModel
from allears.run import train as train_module
from allears.run.material import material_of
from allears.run.recognise import load
from allears.run.settings import RunSettings, settings_of
from allears.run.train import Training, train
from allears.settings import build, overridden
from allears.text.tokenizer import Tokenizer
from allears.training.average import average_folder, chosen
from allears.training.checkpoint import best, checkpoints, load_position, read_tensors
from allears.training.precision import SMALLEST
from allears.types import Loss
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from subprocess import CompletedProcess

    from allears.types import Batch

ALONE = World(0, 1, 0, 1, torch.device("cpu"))


@pytest.fixture
def trained(dataset: Path, small: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """Train a small model into a folder, and what was told of it."""

    def run(folder: Path, *given: str) -> dict[str, Any]:
        data = (f"train.dataset={dataset}", f"validation.dev.dataset={dataset}")
        values = overridden({}, [*small, *data, "training.tensorboard=false", *given])
        return train(build(RunSettings, values, "test"), folder, ALONE)

    return run


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def steps(run: Path, key: str) -> list[float]:
    return [line[key] for line in lines(run) if "loss" in line]


@pytest.mark.parametrize("encoder", ["convolutional", "conformer"])
def test_half_precision_follows_float32(trained: Callable[..., object], tmp_path: Path, encoder: str) -> None:
    heads = ("model.encoder.heads=2",) if encoder == "conformer" else ()
    how = ("training.steps=10", "plan.step_seconds=12", f"model.encoder.kind={encoder}", *heads)
    trained(tmp_path / "whole", *how)
    whole = steps(tmp_path / "whole", "loss")
    for precision in ("bf16", "fp16"):
        run = tmp_path / precision
        trained(run, *how, f"training.precision={precision}")
        half = steps(run, "loss")
        assert half == pytest.approx(whole, rel=0.05)
        assert half != pytest.approx(whole, rel=1e-6)
        assert all(
            value.dtype == torch.float32 for value in read_tensors(checkpoints(run)[-1] / "model.safetensors").values()
        )


@pytest.mark.case("FunASR (source)")
def test_an_overflow_lowers_the_scale_and_the_step_is_run_again(
    trained: Callable[..., object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    given = ("training.precision=fp16", "training.loss_scale=16777216")
    trained(run, *given, "training.steps=6")
    scales = steps(run, "loss_scale")
    assert scales[0] < 2**24
    again = (
        f"step 0: gradients overflowed in float16; it was run again with the loss scaled by {scales[0]:g} instead of"
    )
    assert f"{again} 1.67772e+07." in capsys.readouterr().err
    assert math.log2(scales[0]).is_integer()
    assert steps(run, "applied") == [1, 2, 3, 4, 5, 6]
    assert all(map(math.isfinite, steps(run, "grad_norm")))
    position = load_position(checkpoints(run)[-1])
    assert (position.loss_scale, position.steady) == (scales[-1], 6)
    assert not (run / "quarantine.jsonl").exists()
    assert audit(run).problems == []
    trained(run, *given, "training.steps=7")
    assert steps(run, "loss_scale")[6] == scales[-1]


@pytest.mark.case("FunASR (source)")
def test_a_gradient_that_overflows_at_every_scale_stops_the_run(
    trained: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are finite, no scale helps: the step is not repeated, nor are all later ones skipped, for ever."""
    forward, computed = CtcModel.forward, []

    def steep(self: CtcModel, batch: Batch) -> Loss:
        loss = forward(self, batch)
        computed.append(len(batch.utterances))
        return Loss({"ctc": loss.sums["ctc"] + (0 * self.output.bias).sum().sqrt()}, loss.counts)

    monkeypatch.setattr(CtcModel, "forward", steep)
    with pytest.raises(TrainingError, match=r"step 0: loss or gradient is not finite in any of its 4 micro-batches"):
        trained(tmp_path / "run", "training.precision=fp16", "training.loss_scale=0.0009765625", "training.steps=6")
    halvings = round(math.log2(0.0009765625 / SMALLEST))
    probes = 4  # micro-batches that are run before the first step
    # Each scale once, each micro-batch alone, each utterance alone.
    assert len(computed) <= probes + 4 * (halvings + 1) + 4 + sum(computed[probes : probes + 4])


@pytest.mark.case("wenet #1840")
@pytest.mark.parametrize("precision", ["float32", "fp16"])
def test_rate_moments_and_scale_go_on_where_they_were(
    trained: Callable[..., object], tmp_path: Path, precision: str
) -> None:
    whole, again = tmp_path / "whole", tmp_path / "again"
    kept = ("training.save_every=3", "training.keep=9", "training.digests=true", "training.average=false")
    given = (f"training.precision={precision}", "training.loss_scale=16777216", "training.steps=8", *kept)
    trained(whole, *given)
    shutil.copytree(whole, again)
    for step in (6, 8):
        shutil.rmtree(again / "checkpoints" / f"step-{step:08d}")  # as if it had been killed before it could save
    trained(again, *given)
    found, wanted = (
        [json.loads(line)["digests"] for line in (run / "digests.jsonl").read_text().splitlines()]
        for run in (again, whole)
    )
    assert found == wanted  # by name
    for key in ("loss", "applied", "learning_rate", "loss_scale"):
        assert steps(again, key) == steps(whole, key)
    assert load_position(checkpoints(again)[-1]) == load_position(checkpoints(whole)[-1])


def test_precision_is_no_setting_to_change_on_the_way(trained: Callable[..., object], tmp_path: Path) -> None:
    trained(tmp_path / "run", "training.steps=2")
    trained(tmp_path / "run", "training.steps=3", "training.keep=1")
    with pytest.raises(SettingsError, match=r"training.precision is 'bf16', but .* was trained with 'auto'"):
        trained(tmp_path / "run", "training.steps=4", "training.precision=bf16")


def test_the_length_may_be_given_in_hours_of_audio(trained: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    told = trained(tmp_path / "run", "training.hours=0.05")
    assert told["audio_seconds"] == pytest.approx(0.05 * 3600, rel=0.15)


def test_the_best_checkpoints_stay_and_stand_for_the_run(
    trained: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    every = ("training.validate_every=2", "training.save_every=2", "training.average=false")
    trained(run, "training.steps=12", *every, "training.keep=1", "training.keep_best=2")
    found = {line["step"] + 1: line["wer"] for line in lines(run) if "validation" in line}
    assert sorted(found) == [2, 4, 6, 8, 10, 12]
    ranked = sorted(found, key=lambda step: (found[step], -step))
    kept = [load_position(path).step for path in checkpoints(run)]
    assert sorted(kept) == sorted({12, *ranked[:2]})
    assert chosen(run).name == f"step-{ranked[0]:08d}"
    assert load(run, ALONE)[2] == best(run, 1)[0]


def test_the_average_is_kept_just_when_it_is_better(trained: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = trained(run, "training.steps=12", "training.validate_every=4", "training.save_every=4")
    before = load_position(best(run, 1)[0]).score
    assert before is not None
    assert average_folder(run).exists() == ("average" in told)
    if "average" in told:
        assert told["average"]["dev"]["wer"] < before


def test_a_run_that_was_killed_before_its_average_was_judged_judges_it_when_it_is_started_again(
    trained: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    given = ("training.steps=6", "training.validate_every=2", "training.save_every=2")
    told = trained(run, *given)
    judged = json.loads((run / "average.json").read_text())
    (run / "average.json").unlink()
    (run / "outcome.json").unlink()
    if judged["kept"]:
        average_folder(run).rename(run / "average.trial")  # what the kill left
    again = trained(run, *given)
    assert json.loads((run / "average.json").read_text()) == judged
    assert average_folder(run).exists() == judged["kept"]
    assert again["validation"] == told["validation"]
    assert not (run / "average.trial").exists()


def test_a_complete_run_says_at_once_what_it_has_come_to(
    trained: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    begun: list[tuple[Any, ...]] = []

    def begin(*parts: Any) -> Training:
        begun.append(parts)
        return Training(*parts)

    given = ("training.steps=4", "training.save_every=2", "training.average=false")
    told = trained(run, *given)
    monkeypatch.setattr(train_module, "Training", begin)
    again = trained(run, *given)
    assert begun == []
    spent = {"seconds": 0.0, "audio_seconds": 0.0, "data_seconds": 0.0, "cpu_seconds": again["cpu_seconds"]}
    assert again == {**told, **spent}
    kept = (run / "outcome.json").read_text()
    for damage in ("", "[]", "{}"):
        (run / "outcome.json").write_text(damage)
        assert trained(run, *given)["validation"] == told["validation"]
    assert len(begun) == 3
    assert (run / "outcome.json").read_text() == kept
    assert trained(run, *given, "training.steps=5")["step"] == 5
    newest = checkpoints(run)[-1]
    (newest / "model.safetensors").write_bytes(b"")
    assert trained(run, *given, "training.steps=5")["step"] == 5
    assert len(begun) == 5
    assert (newest.parent / f"{newest.name}.damaged").exists()


def test_one_process_is_enough_to_tell_of_a_complete_run(
    command: Callable[..., CompletedProcess[str]], dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    given = ("train", "tiny", f"dataset={dataset}", *small, "training.steps=2", "training.average=false", "--json")
    first = command(*given, "--out", tmp_path / "run", "--processes", 2)
    assert "2 processes on" in first.stderr
    again = command(*given, "--out", tmp_path / "run", "--processes", 2)
    assert "1 process on" in again.stderr
    assert "this run is complete already, with 2 steps" in again.stderr
    told, before = (json.loads(done.stdout.splitlines()[-1]) for done in (again, first))
    assert told["validation"] == before["validation"]


@pytest.mark.parametrize("damage", ["removed", "changed"])
def test_a_run_without_its_tokenizer_goes_on_with_that_of_its_newest_sound_checkpoint(
    trained: Callable[..., object], tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    run = tmp_path / "run"
    trained(run, "training.steps=2", "training.save_every=1", "training.average=false")
    if damage == "removed":
        shutil.rmtree(run / "tokenizer")
    else:
        (run / "tokenizer" / "tokenizer.json").write_text("{}")
    whole = shutil.copytree(run, tmp_path / "whole")
    (run / "checkpoints" / "step-00000002" / "tokenizer" / "tokenizer.json").write_text("{}")
    capsys.readouterr()
    found = material_of(settings_of(str(run))[0], settings_of(str(run))[0].train, run, True, ALONE)
    said = capsys.readouterr().err
    assert re.search(r"note: the tokenizer of step-00000001 is used, for .*/run/tokenizer.* (exist|tokenizer)", said)
    assert found.tokenizer.digest == Tokenizer.load(run / "checkpoints" / "step-00000001" / "tokenizer").digest
    trained(whole, "training.steps=3", "training.save_every=1", "training.average=false")
    assert len(steps(whole, "loss")) == 3
    assert "note: the tokenizer of step-00000002 is used" in capsys.readouterr().err


def test_weights_are_taken_from_another_run(trained: Callable[..., object], tmp_path: Path) -> None:
    donor, run = tmp_path / "donor", tmp_path / "run"
    trained(donor, "training.steps=8", "training.average=false")
    trained(run, "training.steps=1", f"init_from={donor}", "optimizer.learning_rate.value=1e-9")
    theirs, mine = (read_tensors(chosen(place) / "model.safetensors") for place in (donor, run))
    moved = [name for name in mine if not torch.allclose(mine[name], theirs[name], atol=1e-6) and "running" not in name]
    assert moved == []
    trained(tmp_path / "fresh", "training.steps=1", f"init_from.run={donor}", "init_from.part=encoder", "seed=1")
    fresh = read_tensors(chosen(tmp_path / "fresh") / "model.safetensors")
    assert not torch.allclose(fresh["output.weight"], theirs["output.weight"], atol=1e-2)


def test_weights_of_a_model_with_nothing_in_common_are_refused(trained: Callable[..., object], tmp_path: Path) -> None:
    trained(tmp_path / "donor", "training.steps=1")
    conformer = ("model.encoder.kind=conformer", "model.encoder.heads=2", "model.encoder.width=48")
    with pytest.raises(CheckpointError, match="an encoder that does not fit this model"):
        trained(tmp_path / "run", "training.steps=1", f"init_from={tmp_path / 'donor'}", *conformer)


def test_features_of_the_training_audio_are_measured_once_and_kept(
    trained: Callable[..., object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    trained(run, "training.steps=2", "model.features.normalisation=global")
    found = read_tensors(checkpoints(run)[-1] / "model.safetensors")
    assert found["frontend.normalise.mean"].isfinite().all()
    assert (found["frontend.normalise.deviation"] > 0).all()
    trained(run, "training.steps=3", "model.features.normalisation=global")
    again = read_tensors(checkpoints(run)[-1] / "model.safetensors")
    assert torch.equal(again["frontend.normalise.mean"], found["frontend.normalise.mean"])
    assert "going on at step 2" in capsys.readouterr().err


def test_tensorboard_shows_steps_and_validations_once(trained: Callable[..., object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    for total in (2, 4):
        trained(run, f"training.steps={total}", "training.tensorboard=true", "training.validate_every=2")
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("step/loss")] == [0, 1, 2, 3]
    assert [event.value for event in events.Scalars("step/loss")] == pytest.approx(steps(run, "loss"))
    assert [event.step for event in events.Scalars("dev/wer")] == [1, 3]
