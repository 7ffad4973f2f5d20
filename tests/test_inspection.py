"""What `allears inspect` shows is what a training meets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from allears.cli.main import app
from allears.errors import DatasetError, SettingsError
from allears.inspection import batch, find, utterance
from allears.loading.collection import Collection, SourceSettings
from allears.run.settings import RunSettings
from allears.run.train import train
from allears.settings import build, overridden
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STEPS = 3


@pytest.fixture(scope="module")
def run(dataset: Path, small: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps on tones."""
    folder = tmp_path_factory.mktemp("inspected") / "run"
    given = [*small, f"train.dataset={dataset}", f"training.steps={STEPS}", "training.tensorboard=false"]
    train(build(RunSettings, overridden({}, given), "test"), folder, World(0, 1, 0, 1, torch.device("cpu")))
    return folder


def inspect(*arguments: object) -> Any:
    """The last line of the command, read."""
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def collection(dataset: Path) -> Collection:
    return Collection.open([SourceSettings(dataset=str(dataset))])


def test_an_utterance_is_found_by_its_id(collection: Collection) -> None:
    for number in (0, 7, len(collection) - 1):
        assert find(collection, collection.id(number)) == number


def test_an_unknown_id_is_answered_with_the_nearest(collection: Collection, dataset: Path) -> None:
    with pytest.raises(DatasetError) as error:
        find(collection, "u00077")
    assert str(dataset) in str(error.value)
    assert "'u00077'" in str(error.value)
    assert "'u0007'" in str(error.value).partition("nearest")[2]


def test_an_utterance_as_a_run_hears_it(run: Path, dataset: Path, collection: Collection) -> None:
    first, again, later = (utterance(dataset, "u0003", "tiny", run, epoch) for epoch in (0, 0, 1))
    np.testing.assert_array_equal(first.hidden, again.hidden)
    assert (first.hidden != later.hidden).any()
    np.testing.assert_array_equal(first.features, later.features)
    assert first.text == collection.text(3)
    assert first.tokens
    assert first.seconds == collection.lengths[3] / 16000


def test_an_utterance_without_a_run_has_no_tokens(dataset: Path) -> None:
    heard = utterance(dataset, "u0003", "digits", None, 0)
    assert heard.tokens is None
    assert "this dataset" in heard.kind  # where the statistics come from
    assert np.abs(heard.features.mean()) < 1.0


def test_a_step_is_the_one_that_was_trained(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "loss" in line:
            found = batch(str(run), None, None, line["step"])
            assert sum(len(one.seconds) for one in found.micro_batches) == line["utterances"]
            assert sum(one.tokens for one in found.micro_batches) == line["tokens"]
            assert sum(one.seconds.sum() for one in found.micro_batches) == pytest.approx(line["audio_seconds"])
            assert found.padding == pytest.approx(line["padding"])


def test_speeds_are_seen_and_heard(dataset: Path, small: Sequence[str], tmp_path: Path) -> None:
    given = [*small, f"train.dataset={dataset}", "training.steps=2", "training.tensorboard=false"]
    settings = build(RunSettings, overridden({}, [*given, "augment.speed=[0.8]"]), "test")
    train(settings, tmp_path / "run", World(0, 1, 0, 1, torch.device("cpu")))
    heard = utterance(dataset, "u0003", "tiny", tmp_path / "run", 0)
    assert len(heard.after) == round(len(heard.before) / 0.8)
    assert len(heard.augmented) > len(heard.features)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = batch(str(tmp_path / "run"), None, None, 1)
    assert sum(one.seconds.sum() for one in found.micro_batches) == pytest.approx(lines[1]["audio_seconds"])
    drawn = inspect("utterance", dataset, "u0003", "--run", tmp_path / "run", "--out", tmp_path)
    assert [path.rpartition("/")[2] for path in drawn["audio"]] == [
        "utterance-u0003.wav",
        "utterance-u0003-epoch-0.wav",
    ]


def test_a_step_of_a_later_epoch(run: Path) -> None:
    here = batch(str(run), None, None, 0)
    later = batch(str(run), None, None, 2 * here.steps_per_epoch + 1)
    assert (later.epoch, later.inside) == (2, 1)


def test_attention_counts_in_the_cost(run: Path) -> None:
    plain = batch(str(run), None, None, 0).micro_batches[0]
    both = batch(str(run), None, None, 0, [f"plan.attention_seconds={plain.longest}"])
    one = both.micro_batches[0]
    assert one.cost == pytest.approx(len(one.seconds) * one.longest * (1 + one.longest / plain.longest))


def test_a_run_on_other_data_is_said(run: Path, dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch(str(run), dataset, None, 0)
    assert "trained on other utterances" not in capsys.readouterr().err
    batch(str(run), dataset, None, 0, ["plan.min_seconds=1"])
    assert "trained on other utterances" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"place": "tiny", "dataset": None, "split": None}, "train is empty"),
        ({"place": "tiny", "dataset": None, "split": "train"}, "names no dataset"),
        ({"place": ".", "dataset": None, "split": None}, "no settings.yaml"),
        ({"place": "tyni", "dataset": None, "split": None}, "did you mean 'tiny'"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(given: dict[str, Any], said: str) -> None:
    from allears.errors import AllearsError

    with pytest.raises(AllearsError, match=said):
        batch(**given, step=0)


def test_several_sources_are_not_replaced(dataset: Path) -> None:
    two = f"train=[{{dataset: {dataset}}}, {{dataset: {dataset}}}]"
    with pytest.raises(SettingsError, match="2 sources"):
        batch("tiny", dataset, None, 0, [two])


def test_the_command_draws_an_utterance(run: Path, dataset: Path, tmp_path: Path) -> None:
    found = inspect("utterance", dataset, "u0003", "--run", run, "--out", tmp_path)
    assert found["picture"].endswith("utterance-u0003.png")
    assert {path.name for path in tmp_path.iterdir()} == {"utterance-u0003.png", "utterance-u0003.wav"}
    assert found["normalised"] == found["text"]
    assert -30 < found["level_dbfs"] < found["peak_dbfs"] < 0


def test_the_command_draws_a_step(dataset: Path, tmp_path: Path) -> None:
    settings = ["tokenizer.pieces=16", "plan.step_seconds=24"]
    found = inspect("batch", "tiny", dataset, *settings, "--step", 1, "--out", tmp_path)
    assert (tmp_path / "batch-tiny-00000001.png").exists()
    assert len(found["micro_batches"]) == 4
    assert found["utterances"] == sum(one["utterances"] for one in found["micro_batches"])


@pytest.mark.parametrize("arguments", [["utterance", "d", "u"], ["batch", "tiny", "d"], ["run", "r"]])
def test_pictures_need_a_folder(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"--out .* cannot be made"):
        inspect(*arguments, "--out", tmp_path / "file")


def test_the_command_draws_runs(run: Path, tmp_path: Path) -> None:
    found = inspect("run", run, run, "--out", tmp_path)
    assert [one["steps"] for one in found["runs"]] == [STEPS, STEPS]
    assert found["runs"][0]["best"]["step"] == STEPS
    assert (tmp_path / found["picture"]).exists()
