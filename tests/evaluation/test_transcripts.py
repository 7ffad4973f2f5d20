from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from allears.corpora.find import find
from allears.errors import DatasetError, SettingsError
from allears.evaluation.transcribe import Stretch, Transcript
from allears.evaluation.transcripts import check_out, described, of_dataset, of_files
from allears.loading.collection import Collection, SourceSettings
from allears.manifest import manifest

if TYPE_CHECKING:
    from collections.abc import Callable

HEARD = Transcript((Stretch(0.0, 1.5, "good", 0.5, 1), Stretch(1.5, 2.0, "day", 0.8, 2)))


def test_a_transcript_as_json() -> None:
    assert described(HEARD) == {
        "confidence": 0.7,
        "segments": [
            {"start": 0.0, "end": 1.5, "text": "good", "confidence": 0.5},
            {"start": 1.5, "end": 2.0, "text": "day", "confidence": 0.8},
        ],
    }
    assert described(Transcript((), "gone")) == {"confidence": 0.0, "segments": [], "problem": "gone"}


def test_files_become_a_manifest_that_can_be_prepared(tmp_path: Path) -> None:
    paths = [Path("somewhere/a.wav"), tmp_path / "b.wav"]
    manifest.write(tmp_path / "texts.jsonl", of_files(paths, [HEARD, Transcript((), "gone")]))
    first, second = (json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines())
    assert (first["id"], first["text"], first["duration"]) == ("somewhere/a.wav", "good day", 2.0)
    assert first["audio"] == str(Path.cwd() / "somewhere" / "a.wav")
    assert first["segments"] == described(HEARD)["segments"]
    assert (second["text"], second["duration"], second["problem"]) == ("", None, "gone")
    assert find(tmp_path / "texts.jsonl").layout == "manifest"


def test_a_dataset_becomes_its_manifest_with_other_texts(make_dataset: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_dataset(tmp_path, 6)
    whole = Collection.open([SourceSettings(dataset=str(folder))])
    chosen = whole.only(whole.lengths > int(whole.lengths.min()))
    assert 0 < len(chosen) < len(whole)
    lines = list(of_dataset(chosen, [HEARD] * len(chosen)))
    before = {one.id: one for one in manifest.read(folder / "manifest.jsonl")}
    assert [one.id for one in lines] == [chosen.id(n) for n in range(len(chosen))]
    for one in lines:
        assert one.text == "good day"
        assert one.extra["confidence"] == 0.7
        assert Path(one.audio).samefile(before[one.id].audio)
        assert (one.start, one.duration, one.speaker) == (
            before[one.id].start,
            before[one.id].duration,
            before[one.id].speaker,
        )


def test_another_manifest_than_the_indexs_is_told(make_dataset: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_dataset(tmp_path, 3)
    whole = Collection.open([SourceSettings(dataset=str(folder))])
    lines = (folder / "manifest.jsonl").read_text().splitlines(keepends=True)
    (folder / "manifest.jsonl").write_text("".join(lines[:2]))
    with pytest.raises(DatasetError, match="ends before"):
        list(of_dataset(whole, [HEARD] * 3))
    (folder / "manifest.jsonl").write_text("".join(lines[::-1]))
    with pytest.raises(DatasetError, match="line 1, is"):
        list(of_dataset(whole, [HEARD] * 3))


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ends in \.jsonl"):
        check_out(tmp_path / "a.wav", [tmp_path / "a.wav"])
    with pytest.raises(SettingsError, match="belongs to what is transcribed"):
        check_out(tmp_path / "manifest.jsonl", [tmp_path])
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(SettingsError, match=r"ends in \.jsonl"):
        check_out(tmp_path / "folder.jsonl", [tmp_path])
    check_out(tmp_path / "texts.jsonl", [tmp_path])


def test_only_transcripts_are_written_over(tmp_path: Path) -> None:
    out = tmp_path / "texts.jsonl"
    check_out(out, [])
    for text in ("", manifest.line(next(of_files([Path("a.wav")], [Transcript((), "gone")]))).decode()):
        out.write_text(text)
        check_out(out, [])
    for text in ("\n", "no JSON", "[1]", '{"step": 0}', '{"id": "a", "audio": "a.wav", "text": "a"}', "\xff"):
        out.write_text(text, encoding="latin-1")
        with pytest.raises(SettingsError, match=r"texts\.jsonl is there and does not hold transcripts"):
            check_out(out, [])


def test_nothing_is_written_into_datasets_and_runs(
    make_dataset: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_dataset(tmp_path, 3)
    with pytest.raises(SettingsError, match="lies in the folder of a dataset"):
        check_out(folder / "texts.jsonl", [])
    monkeypatch.chdir(folder)
    with pytest.raises(SettingsError, match="lies in the folder of a dataset"):
        check_out(Path("manifest.jsonl"), [])
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(SettingsError, match="lies in the folder of a run"):
        check_out(tmp_path / "run" / "metrics.jsonl", [])
