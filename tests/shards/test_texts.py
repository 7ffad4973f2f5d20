"""Transcripts that change: the audio stays, all else is as if it had been prepared so."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from allears.corpora.find import find
from allears.errors import DatasetError
from allears.manifest.index import Index
from allears.shards.prepare import Corpus, prepare
from allears.shards.texts import change_texts

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = {f"u{n}": f"text {n}" for n in range(6)}


def prepared(folder: Path, texts: dict[str, str], out: str) -> Path:
    """A dataset of as many noises."""
    folder.mkdir(exist_ok=True)
    for n in range(len(texts)):
        noise = np.random.default_rng(n).normal(0, 2000, 4000 + n).astype(np.int16)
        soundfile.write(folder / f"u{n}.wav", noise, 16_000)
    rows = (f"{name}\t{name}.wav\t{text}\tspeaker {name}\n" for name, text in texts.items())
    (folder / "metadata.tsv").write_text("id\taudio\ttext\tspeaker\n" + "".join(rows), encoding="utf-8")
    found = find(folder, None)
    corpus = Corpus(folder, found.layout, found.utterances, found.rejections)
    prepare(corpus, folder.parent / out, processes=1)
    return folder.parent / out


def contents(folder: Path, *without: str) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in without)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_dataset_is_as_if_it_had_been_prepared_so(tmp_path: Path) -> None:
    dataset = prepared(tmp_path / "corpus", TEXTS, "dataset")
    new = {"u1": "another text", "u4": "text 4", "elsewhere": "not here"}
    done = change_texts(dataset, new)
    assert (done.utterances, done.changed, done.unknown) == (6, 1, ["elsewhere"])
    wanted = prepared(tmp_path / "corpus", TEXTS | {"u1": "another text"}, "wanted")
    assert contents(dataset, "report.json") == contents(wanted, "report.json")
    kept, other = (json.loads((one / "report.json").read_text()) for one in (dataset, wanted))
    assert kept.pop("source_digest") != other.pop("source_digest")
    assert kept == other


def test_a_preparation_of_the_corpus_does_not_take_it_for_its_own(tmp_path: Path) -> None:
    dataset = prepared(tmp_path / "corpus", TEXTS, "dataset")
    change_texts(dataset, {"u1": "another text"})
    with pytest.raises(DatasetError, match="is a dataset of another corpus"):
        prepared(tmp_path / "corpus", TEXTS, "dataset")


def test_killed_between_manifest_and_index_it_comes_to_the_same(tmp_path: Path) -> None:
    dataset = prepared(tmp_path / "corpus", TEXTS, "dataset")
    old = tmp_path / "old"
    shutil.copytree(dataset / "index", old)
    change_texts(dataset, {"u1": "another text"})
    wanted = contents(dataset, "report.json")
    shutil.rmtree(dataset / "index")
    shutil.copytree(old, dataset / "index")
    change_texts(dataset, {"u1": "another text"})
    assert contents(dataset, "report.json") == wanted


def test_ids_that_fit_nothing_change_nothing(tmp_path: Path) -> None:
    dataset = prepared(tmp_path / "corpus", TEXTS, "dataset")
    before = contents(dataset)
    with pytest.raises(DatasetError, match="has none of the 1 utterances that got a transcript, such as 'U1'; its ids"):
        change_texts(dataset, {"U1": "another text"})
    assert contents(dataset) == before


@pytest.mark.parametrize("how", ["shorter", "other", "longer"])
def test_a_manifest_that_is_not_the_indexs_is_refused(tmp_path: Path, how: str) -> None:
    dataset = prepared(tmp_path / "corpus", TEXTS, "dataset")
    path = dataset / "manifest.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = {"shorter": lines[:-1], "other": [*lines[:2], lines[3], *lines[3:]], "longer": [*lines, lines[0]]}
    path.write_bytes(b"".join(damaged[how]))
    digest = Index.open(dataset).digest
    with pytest.raises(DatasetError, match=r"is damaged: line \d of manifest.jsonl"):
        change_texts(dataset, {"u1": "another text"})
    assert Index.open(dataset).digest == digest
    assert path.read_bytes() == b"".join(damaged[how])
