"""Reading a real dataset: everything measured once, by any number of processes; damage of every sort is a finding."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from allears.corpora.find import find
from allears.manifest.index import Index
from allears.preflight.settings import PreflightSettings
from allears.preflight.survey import BAD_SHARD, SOUND, UNREADABLE, Survey, stretches, survey
from allears.shards.prepare import Corpus, prepare

if TYPE_CHECKING:
    from allears.manifest.index import Encoding

SETTINGS = PreflightSettings()


def made(folder: Path, encoding: Encoding) -> Path:
    """Three shards of one-second noises, the second file twice."""
    (folder / "corpus").mkdir(parents=True)
    lines = []
    for number in range(8):
        seed = 1 if number == 2 else number
        samples = np.random.default_rng(seed).normal(0, 3000, 16_000 + 100 * seed).astype(np.int16)
        soundfile.write(folder / "corpus" / f"u{number}.wav", samples, 16_000)
        seconds = 60 if number < 4 else 20  # the corpus is wrong about them, so that several shards are planned
        text = f"stra{'ß' if number in {3, 5} else 'ss'}e number {number}"
        lines.append(f'{{"audio_filepath": "u{number}.wav", "text": "{text}", "duration_s": {seconds}}}\n')
    (folder / "corpus" / "list.json").write_text("".join(lines))
    found = find(folder / "corpus", None)
    prepare(
        Corpus(folder / "corpus", found.layout, found.utterances, found.rejections),
        folder / "dataset",
        encoding=encoding,
        processes=1,
    )
    return folder / "dataset"


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[Encoding, Path]:
    place = tmp_path_factory.mktemp("survey")
    return {"pcm16": made(place / "pcm16", "pcm16"), "flac": made(place / "flac", "flac")}


@pytest.fixture
def dataset(datasets: dict[Encoding, Path], tmp_path: Path) -> Path:
    """A copy of the FLAC one, to be damaged."""
    return Path(shutil.copytree(datasets["flac"], tmp_path / "dataset"))


def read(folder: Path, processes: int = 1) -> Survey:
    return survey(Index.open(folder), SETTINGS, processes)


def shard_of(folder: Path, row: int) -> tuple[Path, int, int]:
    """File, offset and size of an utterance."""
    index = Index.open(folder)
    return folder / index.shards[int(index.shard[row])].name, int(index.offset[row]), int(index.size[row])


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 16
    path.write_bytes(data)


def test_both_encodings_and_any_number_of_processes_find_the_same(datasets: dict[Encoding, Path]) -> None:
    one, two, flac = read(datasets["pcm16"]), read(datasets["pcm16"], 2), read(datasets["flac"])
    assert len(stretches(one.index, SETTINGS)) == 3
    for other in (two, flac):
        assert one.columns.tobytes() == other.columns.tobytes()
        assert one.letters == other.letters
    columns = one.columns
    assert columns["samples"].tolist() == one.index.samples.tolist()
    assert columns["audio"][1] == columns["audio"][2]
    assert len(set(columns["audio"].tolist())) == 7
    assert one.readable.all()
    assert one.letters.rows == {"ß": [3, 5]}
    assert (columns["level"] > -30).all()
    assert columns["bandwidth"].tolist() == [8000] * 8


def test_a_byte_of_a_flac_stream_is_found_where_it_is(dataset: Path) -> None:
    path, offset, size = shard_of(dataset, 2)
    for position in (offset + size // 2, offset + 30):  # in a frame; in the checksum itself
        flip(path, position)
        found = read(dataset)
        assert found.columns["problem"].tolist() == [SOUND, SOUND, UNREADABLE, *[SOUND] * 5]
        assert found.details[2]
        flip(path, position)
    assert read(dataset).readable.all()


def test_a_byte_of_a_pcm_shard_accuses_the_shard(datasets: dict[Encoding, Path], tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(datasets["pcm16"], tmp_path / "dataset"))
    path, offset, size = shard_of(dataset, 5)
    flip(path, offset + size // 2)
    found = read(dataset)
    shard = found.index.shard == found.index.shard[5]
    assert ((found.columns["problem"] == BAD_SHARD) == shard).all()
    assert "has other bytes than when it was written" in " ".join(found.details.values())


@pytest.mark.parametrize("size", [None, 0, 700])
def test_a_shard_that_is_missing_or_cut_short(dataset: Path, size: int | None) -> None:
    path, _, _ = shard_of(dataset, 7)
    if size is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:size])
    found = read(dataset)
    shard = found.index.shard == found.index.shard[7]
    assert 0 < shard.sum() < 8
    assert ((found.columns["problem"] == BAD_SHARD) == shard).all()
    assert str(path) in found.details[7]
    assert found.seconds[7] == found.index.samples[7] / 16_000
