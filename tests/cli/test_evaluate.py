"""``evaluate`` and ``transcribe`` as a person runs them, on one and on two processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
import torch

from allears.corpora.find import find
from allears.errors import CheckpointError, DatasetError, SettingsError
from allears.loading.collection import SourceSettings
from allears.run.recognise import evaluate, transcribe
from allears.world import World

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

    Command = Callable[..., subprocess.CompletedProcess[str]]

LONE = World(0, 1, 0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def trained(command: Command, dataset: Path, small: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt enough to say something."""
    run = tmp_path_factory.mktemp("evaluated") / "run"
    command("train", "tiny", f"dataset={dataset}", *small, "training.steps=25", "--out", run)
    return run


def scored(run: Path, dataset: Path, name: str | None = None, **how: Any) -> dict[str, Any]:
    return evaluate(run, SourceSettings(dataset=str(dataset)), name, LONE, **how)


def heard(folder: str) -> list[Any]:
    """The hypotheses, without their confidence, whose last digit may differ."""
    lines = (Path(folder) / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines()
    return [{**json.loads(line), "confidence": None} for line in lines]


@pytest.mark.case("transformers #15107")
@pytest.mark.case("speechbrain #1582")
def test_processes_and_batches_change_nothing(command: Command, trained: Path, dataset: Path) -> None:
    first = scored(trained, dataset, batch=16)
    texts = heard(first["folder"])
    assert first["folder"] == str(trained / "evaluation" / "dataset")
    assert first["utterances"] == len(texts) == 160
    assert len({one["text"] for one in texts}) > 5
    assert first["interval"][0] <= first[first["headline"]] <= first["interval"][1]
    figures = {key: value for key, value in first.items() if key not in {"speakers", "worst"}}
    assert scored(trained, dataset, batch=1).items() >= figures.items()
    assert heard(first["folder"]) == texts
    done = command("evaluate", trained, dataset, "--json", "--batch", 1, "--processes", 2)
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"wer", "cer", "mer", "errors", "units", "utterances"} <= found.keys()
    assert found == figures
    assert heard(first["folder"]) == texts
    assert done.stdout.count("heard") == 5


def test_the_checkpoint_of_a_run_writes_to_the_run(trained: Path, dataset: Path, tmp_path: Path) -> None:
    newest = max((trained / "checkpoints").iterdir())
    before = sorted(newest.rglob("*"))
    found = scored(newest, dataset, worst=1)
    assert found["folder"] == str(trained / "evaluation" / f"dataset-{newest.name}")
    assert len(json.loads((Path(found["folder"]) / "result.json").read_text())["worst"]) == 1
    with pytest.raises(SettingsError, match="lies in the checkpoint"):
        scored(newest, dataset, out=newest / "evaluation")
    assert sorted(newest.rglob("*")) == before
    assert scored(newest, dataset, out=tmp_path / "here", normaliser="verbatim")["normaliser"] == "verbatim"
    assert (tmp_path / "here" / "result.json").exists()


def test_what_is_wrong_is_told_before_the_work(trained: Path, dataset: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean 'basic'"):
        scored(trained, dataset, normaliser="basc")
    with pytest.raises(DatasetError, match="no split 'x'"):
        evaluate(trained, SourceSettings(dataset=str(dataset), split="x"), "test", LONE)
    with pytest.raises(SettingsError, match="--split x is for a dataset"):
        transcribe(trained, [dataset / "manifest.jsonl"], LONE, split="x")
    with pytest.raises(SettingsError, match="belongs to what is transcribed"):
        transcribe(trained, [dataset], LONE, out=dataset / "manifest.jsonl")
    with pytest.raises(SettingsError, match="lies in the folder of a run"):
        transcribe(trained, [dataset], LONE, out=trained / "metrics.jsonl")
    with pytest.raises(SettingsError, match=r"corpus is a folder, but not a prepared dataset; name its audio files\."):
        transcribe(trained, [dataset.parent / "corpus"], LONE)
    wav = dataset.parent / "corpus" / "u0000.wav"
    with pytest.raises(SettingsError, match="dataset is a dataset, and more is named beside it"):
        transcribe(trained, [wav, dataset], LONE)
    with pytest.raises(SettingsError, match=r"u0000\.wav is named twice"):
        transcribe(trained, [wav, wav], LONE)


class Deaf(World):
    """A second rank: what it finds itself is not heard."""

    def from_leader(self, value: Any) -> Any:
        assert not isinstance(value, Exception)
        return CheckpointError("the leader's own words")


def test_the_first_rank_chooses_the_checkpoint(trained: Path, dataset: Path) -> None:
    with pytest.raises(CheckpointError, match="the leader's own words"):
        evaluate(trained.parent, SourceSettings(dataset=str(dataset)), "x", Deaf(1, 2, 1, 2, torch.device("cpu")))


@pytest.fixture(scope="module")
def files(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A file of the corpus, one that is no audio, silence, and the first at another rate."""
    folder = tmp_path_factory.mktemp("files")
    first = json.loads((dataset / "manifest.jsonl").read_text().splitlines()[0])
    shutil.copy(first["audio"], folder / "good.wav")
    soundfile.write(folder / "rate.wav", np.repeat(soundfile.read(first["audio"])[0], 3), 48000)
    soundfile.write(folder / "silent.wav", np.zeros(16000, dtype=np.int16), 16000)
    (folder / "bad.wav").write_text("bad")
    return [folder / name for name in ("good.wav", "bad.wav", "silent.wav", "rate.wav")]


def test_a_bad_file_ends_nothing_but_success(command: Command, trained: Path, files: list[Path]) -> None:
    found = dict(transcribe(trained, files, LONE))
    done = command("transcribe", trained, *files, "--json", "--processes", 2, fails=True)
    *lines, last = done.stdout.splitlines()
    # what could not be read has no line: an empty one would say that nobody spoke
    assert lines == [f"{name}\t{one.text}" for name, one in found.items() if name != str(files[1])]
    assert done.stderr.count(f"{files[1]} is not audio") == 1
    assert done.stderr.splitlines()[-1].endswith("1 of 4 could not be transcribed; the notes above say why.")
    said = json.loads(last)
    assert (said["utterances"], said["problems"]) == (4, 1)
    assert said["texts"] == {name: one.text for name, one in found.items()}
    assert said["segments"][str(files[2])] == [{"start": 0.0, "end": 1.0, "text": "", "confidence": 1.0}]
    assert all(0 <= value <= 1 for value in said["confidences"].values())


def test_a_dataset_becomes_a_manifest(trained: Path, dataset: Path, tmp_path: Path) -> None:
    texts = [(one["id"], one["text"]) for one in heard(scored(trained, dataset)["folder"])]
    found = transcribe(trained, [dataset], LONE, out=tmp_path / "texts.jsonl")
    assert [(name, one.text) for name, one in found] == texts
    lines = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    assert [(one["id"], one["text"]) for one in lines] == texts
    assert all(0 <= one["confidence"] <= 1 and len(one["segments"]) == 1 for one in lines)
    assert [one.text for one in find(tmp_path / "texts.jsonl").utterances] == [text for _, text in texts]
