"""Each layout's reader, on small corpora written here and on real ones where they are there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from allears.corpora import kaldi, manifest, metadata, nemo, pairs
from allears.corpora.find import find
from allears.corpora.layout import Found, ids_from_paths
from allears.errors import CorpusError

REAL = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the folder of real speech is not beside the repository")


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def reasons(found: Found) -> list[tuple[str, str]]:
    assert all(one.detail.endswith(".") for one in found.rejections)
    return [(one.id, one.reason) for one in found.rejections]


# path<TAB>text


def test_pairs(tmp_path: Path) -> None:
    touch(tmp_path, "a.wav", "b/c.d.wav")
    (tmp_path / "x.tsv").write_text("a.wav\tone two\nb/c.d.wav\t three \n./a.wav\tagain\n")
    found = pairs.utterances(tmp_path / "x.tsv")
    assert [(one.id, one.text) for one in found.utterances] == [("a", "one two"), ("b/c.d", "three"), ("a", "again")]
    assert found.utterances[1].audio == str(tmp_path / "b/c.d.wav")
    assert found.utterances[0].duration is None
    assert not found.rejections
    assert not found.notes


def test_pairs_as_they_come(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbfa.wav\tone\ttwo\r\n",
        b"\r\n",
        b"no tab here\r\n",
        b"\tno path\r\n",
        b"b.wav\tbroken \xff utf-8\r\n",
        b"c.wav\t\r\n",
        "d.wav\tline separators \u2028 \x0c stay\r\n".encode(),
        b"e.wav\tlast line without an end",
    ]
    (tmp_path / "x.tsv").write_bytes(b"".join(lines))
    found = pairs.utterances(tmp_path / "x.tsv")
    assert [(one.id, one.text) for one in found.utterances] == [
        ("a", "one two"),
        ("c", ""),
        ("d", "line separators \u2028 \x0c stay"),
        ("e", "last line without an end"),
    ]
    assert reasons(found) == [("x.tsv:3", "bad line"), ("x.tsv:4", "bad line"), ("x.tsv:5", "bad line")]
    assert any("1 transcripts hold a tab" in note for note in found.notes)


def test_paths_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "here/a.wav")
    touch(tmp_path, "there/x.tsv")
    (tmp_path / "there/x.tsv").write_text("a.wav\tone\n")
    monkeypatch.chdir(tmp_path / "here")
    found = pairs.utterances(tmp_path / "there/x.tsv")
    assert found.utterances[0].audio == str(tmp_path / "here/a.wav")
    assert "were found under" in found.notes[0]


def test_ids_are_told_apart() -> None:
    places = [("a.wav", 0.0), ("a.flac", 0.0), ("b.wav", 0.0), ("b.wav", 1.5), ("/c/../c.wav", 0.0), ("d", 0.0)]
    assert ids_from_paths(places) == ["a.wav", "a.flac", "b-00000000", "b-00001500", "c/c", "d"]
    assert ids_from_paths([("a.wav", 0.0), ("a.wav", 0.0)]) == ["a", "a"]


# metadata.tsv


def test_metadata_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_bytes(
        b"\xef\xbb\xbfsplit\ttext\tAudio\tid\tspeaker\tage\tlanguage\tduration_s\r\n"
        b"train\tone\ta.wav\tu1\tanna\t7\ten\t1.5\r\n"
    )
    (one,) = metadata.utterances(tmp_path / "metadata.tsv").utterances
    assert (one.id, one.text, one.speaker, one.split, one.language) == ("u1", "one", "anna", "train", "en")
    assert one.audio == str(tmp_path / "a.wav")
    assert one.duration is None  # the whole file, whatever was rounded into the column
    assert dict(one.extra) == {"age": "7", "duration_s": "1.5"}


def test_metadata_lines_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text(
        "id\taudio\ttext\tspeaker\nu1\ta.wav\tone\ttab\tanna\nu2\ta.wav\tone\n\ta.wav\tone\tanna\nu4\t\tone\tanna\n"
        "u5\ta.wav\tone\tanna\n"
    )
    found = metadata.utterances(tmp_path / "metadata.tsv")
    assert [one.id for one in found.utterances] == ["u5"]
    assert reasons(found) == [(f"metadata.tsv:{line}", "bad line") for line in (2, 3, 4, 5)]
    assert "5 fields where the header has 4" in found.rejections[0].detail


def test_metadata_with_text_last_keeps_tabs_as_spaces(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text("audio\ttext\na.wav\tone\ttwo\nb.wav\t\n")
    found = metadata.utterances(tmp_path / "metadata.tsv")
    assert [(one.id, one.text) for one in found.utterances] == [("a", "one two"), ("b", "")]
    assert "1 transcripts hold a tab" in found.notes[0]


def test_metadata_with_segments(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text(
        "audio\tstart\tduration\ttext\na.wav\t0\t1.5\tx\na.wav\t1.5\t2\ty\na.wav\tz\t\tz\n"
    )
    found = metadata.utterances(tmp_path / "metadata.tsv")
    assert [(one.id, one.start, one.duration) for one in found.utterances] == [
        ("a-00000000", 0.0, 1.5),
        ("a-00001500", 1.5, 2.0),
    ]
    assert "'start' must be a number" in found.rejections[0].detail


@pytest.mark.parametrize("header", ["id\ttext", "audio\ttext\taudio", "audio\ttext\tx\tx", ""])
def test_metadata_header_that_is_wrong(tmp_path: Path, header: str) -> None:
    (tmp_path / "metadata.tsv").write_text(f"{header}\nsomething\n")
    with pytest.raises(CorpusError, match=r"The header of .*metadata\.tsv"):
        metadata.utterances(tmp_path / "metadata.tsv")


def test_utf16_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text("audio\ttext\na.wav\tone\n", encoding="utf-16")
    with pytest.raises(CorpusError, match="UTF-16"):
        find(tmp_path)


# Kaldi


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


# NeMo, and our own


def test_nemo(tmp_path: Path) -> None:
    records = [
        {"audio_filepath": "a.wav", "duration": 1.5, "text": "one", "lang": "en", "pred": 3},
        {"audio_filepath": "b.wav", "duration": 2, "offset": 0, "text": "two"},
        {"audio_filepath": "b.wav", "duration": 2, "offset": 2.5, "text": "three", "speaker": 7},
        {"audio_filepath": "c.wav", "text": None, "duration": None, "id": "own"},
    ]
    lines = [json.dumps(one) for one in records] + ['{"text": "x"}', "{"]
    (tmp_path / "train.json").write_text("\ufeff" + "\r\n".join(lines))
    found = nemo.utterances(tmp_path / "train.json")
    assert [(one.id, one.start, one.duration, one.text, one.speaker) for one in found.utterances] == [
        ("a", 0.0, 1.5, "one", ""),
        ("b-00000000", 0.0, 2.0, "two", ""),
        ("b-00002500", 2.5, 2.0, "three", "7"),
        ("own", 0.0, None, "", ""),
    ]
    assert (found.utterances[0].language, dict(found.utterances[0].extra)) == ("en", {"pred": 3})
    assert found.utterances[0].audio == str(tmp_path / "a.wav")
    assert reasons(found) == [("train.json:5", "bad line"), ("train.json:6", "bad line")]


def test_own_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text(
        '{"id": "u1", "audio": "a.wav", "text": "one", "start": 1, "duration": 2, "split": "test", "snr": 3}\n'
        '{"id": 1}\n'
    )
    found = manifest.utterances(tmp_path / "manifest.jsonl")
    (one,) = found.utterances
    assert (one.id, one.audio, one.start, one.duration) == ("u1", str(tmp_path / "a.wav"), 1.0, 2.0)
    assert (one.split, dict(one.extra)) == ("test", {"snr": 3})
    assert reasons(found) == [("manifest.jsonl:2", "bad line")]


# finding


def test_each_layout_is_found_and_named(tmp_path: Path) -> None:
    texts = {
        "metadata/metadata.tsv": "audio\ttext\na.wav\tone\n",
        "pairs/x.txt": "a.wav\tone\n",
        "nemo/x.json": '{"audio_filepath": "a.wav", "text": "one"}\n',
        "manifest/x.jsonl": '{"id": "u", "audio": "a.wav", "text": "one"}\n',
    }
    for name, text in texts.items():
        touch(tmp_path, name)
        (tmp_path / name).write_text(text)
        for path in (tmp_path / name, (tmp_path / name).parent):
            corpus = find(path)
            assert corpus.layout == name.split("/")[0]
            assert Path(name).name in corpus.recognised
            assert [one.text for one in corpus.utterances] == ["one"]
            assert find(path, corpus.layout).utterances == corpus.utterances


def test_several_files_are_splits_where_lines_say_none(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text('{"audio_filepath": "a.wav", "text": "one"}\n')
    (tmp_path / "dev.json").write_text('{"audio_filepath": "b.wav", "text": "two", "split": "own"}\n')
    assert [(one.id, one.split) for one in find(tmp_path).utterances] == [("b", "own"), ("a", "train")]


def test_defaults_fill_gaps_only(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text("audio\tlanguage\ttext\na.wav\tzh\tone\nb.wav\t\ttwo\n")
    found = find(tmp_path).with_defaults("en", "train").utterances
    assert [(one.language, one.split) for one in found] == [("zh", "train"), ("en", "train")]


def test_what_cannot_be_found(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist"):
        find(tmp_path / "none")
    with pytest.raises(CorpusError, match=r"no known layout; looked for .*wav\.scp.*--layout NAME"):
        find(tmp_path)
    with pytest.raises(CorpusError, match="--layout lhotse is not known; there are manifest, metadata, kaldi"):
        find(tmp_path, "lhotse")
    with pytest.raises(CorpusError, match="has no Kaldi data directories"):
        find(tmp_path, "kaldi")
    (tmp_path / "metadata.tsv").write_text("audio\ttext\na.wav\tone\n")
    (tmp_path / "x.json").write_text('{"audio_filepath": "a.wav", "text": "one"}\n')
    with pytest.raises(CorpusError, match=r"several ways: metadata \(metadata.tsv\); nemo \(x.json\); choose one"):
        find(tmp_path)
    assert find(tmp_path, "nemo").layout == "nemo"
    assert find(tmp_path / "x.json").layout == "nemo"


def test_what_is_found_does_not_depend_on_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "c/a.wav")
    (tmp_path / "c/metadata.tsv").write_text("audio\ttext\na.wav\tone\nwrong\n")
    absolute = find(tmp_path / "c")
    monkeypatch.chdir(tmp_path)
    assert find(Path("c")) == absolute
    assert find(Path("c/../c")) == absolute


@real
@pytest.mark.parametrize(
    ("name", "utterances"),
    [
        ("fsdd", 3000),
        ("speechocean", 800),
        ("aishell_sample", 300),
        ("librispeech_mini", 90),
        ("ljspeech_mini", 32),
        ("an4_mini", 55),
        ("yesno", 60),
        ("speech_commands_3w", 300),
    ],
)
def test_real_corpora(name: str, utterances: int) -> None:
    corpus = find(REAL / name)
    assert (len(corpus.utterances), len(corpus.rejections)) == (utterances, 0)
    assert all(os.path.exists(one.audio) and one.text and one.speaker for one in corpus.utterances)  # noqa: PTH110
    assert len({one.id for one in corpus.utterances}) == utterances
    assert corpus.layout == ("kaldi" if name == "speechocean" else "metadata")
