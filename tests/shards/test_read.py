"""Reading audio from shards by position."""

from __future__ import annotations

import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile

from allears.errors import DatasetError
from allears.manifest.index import Index
from allears.shards.prepare import Corpus, prepare
from allears.shards.read import OPEN_FILES, ShardReader
from allears.types import Utterance


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of several shards."""
    folder = tmp_path_factory.mktemp("corpus")
    utterances = []
    for i in range(10):
        samples = np.random.default_rng(i).normal(0, 2000, 60 * 16_000).astype(np.int16)
        soundfile.write(folder / f"{i}.wav", samples, 16_000)
        utterances.append(Utterance(str(i), str(folder / f"{i}.wav"), "text"))
    out = folder.parent / "dataset"
    prepare(Corpus(folder, "pairs", utterances, []), out, processes=2)
    assert len(Index.open(out).shards) == 5
    return out


def test_many_threads_read_at_once(made: Path) -> None:
    index = Index.open(made)
    reader = ShardReader(index)
    wanted = [reader.segment(i).data for i in range(len(index))]
    reader.close()
    barrier = threading.Barrier(8)

    def work(seed: int) -> bool:
        order = np.random.default_rng(seed).integers(0, len(index), 300)
        barrier.wait()
        return all(reader.segment(int(i)).data == wanted[i] for i in order)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))


def test_descriptors_are_bounded_and_closed_with_their_last_user(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPEN_FILES < 1000
    monkeypatch.setattr("allears.shards.read.OPEN_FILES", 1)
    index = Index.open(made)
    reader = ShardReader(index)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for i in range(len(index)):
        reader.segment(i)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    reader.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("damage", ["cut", "longer", "gone"])
def test_a_damaged_shard_is_named(made: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(made, tmp_path / "d")
    path = tmp_path / "d" / "shards" / "00000.h5"
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(data[:-1] if damage == "cut" else data + b"x")
    with pytest.raises(DatasetError, match=r"00000\.h5.*--overwrite"):
        ShardReader(Index.open(tmp_path / "d")).segment(0)


def test_a_shard_cut_while_it_is_open(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "d")
    index = Index.open(tmp_path / "d")
    reader = ShardReader(index)
    reader.segment(0)
    path = tmp_path / "d" / index.shards[0].name
    with path.open("r+b") as file:
        file.truncate(int(index.offset[0]) + 10)
    with pytest.raises(DatasetError, match=r"gave 10 of \d+ bytes"):
        reader.segment(0)


def test_it_pickles_for_loader_processes(made: Path) -> None:
    reader = ShardReader(Index.open(made))
    wanted = reader.segment(3)
    assert pickle.loads(pickle.dumps(reader)).segment(3) == wanted  # noqa: S301 (made on this line)
