"""Finding the layout of a corpus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from allears.corpora.find import find
from allears.errors import CorpusError

REAL = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the folder of real speech is not beside the repository")


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


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
