"""Kaldi data directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allears.corpora import kaldi
from allears.corpora.find import find

if TYPE_CHECKING:
    from pathlib import Path

    from allears.corpora.layout import Found


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def reasons(found: Found) -> list[tuple[str, str]]:
    assert all(one.detail.endswith(".") for one in found.rejections)
    return [(one.id, one.reason) for one in found.rejections]


def data_folder(folder: Path, **tables: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in tables.items():
        (folder / name.replace("wav_scp", "wav.scp")).write_text(lines)
    return folder


def test_kaldi(tmp_path: Path) -> None:
    touch(tmp_path, "wave/a.wav")
    source = data_folder(
        tmp_path / "train",
        wav_scp="u1 wave/a.wav\nu2\twave/b c.wav\nu3 sph2pipe -f wav x.sph |\nu4 foo.ark:17\nu5 /abs/e.wav\n",
        text="u1 ONE TWO\nu2\nu3 X\nu4 X\nu5 FIVE\nu9 NOBODY\n",
        utt2spk="u1 anna\nu2 bo\n",
        spk2gender="anna f\n",
        utt2lang="u1 en\n",
    )
    found = kaldi.utterances(source)
    assert [(one.id, one.text, one.speaker) for one in found.utterances] == [
        ("u1", "ONE TWO", "anna"),
        ("u2", "", "bo"),
        ("u5", "FIVE", ""),
    ]
    assert [one.audio for one in found.utterances] == [
        str(tmp_path / "wave/a.wav"),
        str(tmp_path / "wave/b c.wav"),
        "/abs/e.wav",
    ]
    assert dict(found.utterances[0].extra) == {"gender": "f"}
    assert found.utterances[0].language == "en"
    assert reasons(found) == [("u3", "command not run"), ("u4", "unreadable"), ("u9", "missing file")]
    assert "wav.scp" in found.rejections[0].detail
    assert str(tmp_path) in found.notes[0]


@pytest.mark.parametrize("base", ["s5", "s5/data", "s5/data/train", "cwd"])
def test_kaldi_paths_from_wherever_they_start(tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = data_folder(tmp_path / "s5/data/train", wav_scp="u1 wave/a.wav\n", text="u1 ONE\n")
    touch(tmp_path, f"{base}/wave/a.wav")
    if base == "cwd":
        monkeypatch.chdir(tmp_path / "cwd")
    (one,) = kaldi.utterances(source).utterances
    assert one.audio == str(tmp_path / base / "wave/a.wav")


def test_kaldi_segments(tmp_path: Path) -> None:
    source = data_folder(
        tmp_path,
        wav_scp="r1 a.wav\nr2 cat b.wav |\nr1 again.wav\n",
        segments="u1 r1 0.5 1.75\nu2 r1 1.75 -1\nu3 r7 0 1\nu4 r1 0\nu5 r1 x 1\nu6 r2 0 1\n",
        text="u1 ONE\nu2 TWO\nu6 SIX\nu1 TWICE\n",
    )
    found = kaldi.utterances(source)
    assert [(one.id, one.text, one.start, one.duration) for one in found.utterances] == [
        ("u1", "ONE", 0.5, 1.25),
        ("u2", "TWO", 1.75, None),
    ]
    assert sorted(reasons(found)) == [
        ("r1", "duplicate id"),
        ("u1", "duplicate id"),
        ("u3", "missing file"),
        ("u4", "bad line"),
        ("u5", "bad line"),
        ("u6", "command not run"),
    ]


def test_kaldi_folders_are_splits(tmp_path: Path) -> None:
    for name in ("test", "train", "train.clean"):
        data_folder(tmp_path / name, wav_scp=f"{name}-1 a.wav\n", text=f"{name}-1 ONE\n")
    corpus = find(tmp_path)
    assert corpus.layout == "kaldi"
    assert [(one.id, one.split) for one in corpus.utterances] == [
        ("test-1", "test"),
        ("train-1", "train"),
        ("train.clean-1", "train.clean"),
    ]
    assert find(tmp_path / "train").utterances[0].split == ""
    assert find(tmp_path / "train" / "wav.scp").utterances[0].id == "train-1"
