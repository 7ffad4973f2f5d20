"""The memory-mapped index."""

from __future__ import annotations

import json
import pickle
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allears import seeding
from allears.errors import DatasetError
from allears.manifest.index import Index, Row, Rows, ShardFile, chosen, taken, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARDS = [ShardFile("shards/00000.h5", 1000, "ab"), ShardFile("shards/00001.h5", 2000, "cd")]
ROWS = [
    Row("u1", "zero", "anna", "en", "train", 16_000, 0, 100, 32_000),
    Row("u2", "设定三十度", "bo", "zh", "test", 8_000, 0, 32_100, 16_000),
    Row("ü3", "", "anna", "", "train", 1, 1, 2**40, 2),
]


def test_round_trip(tmp_path: Path) -> None:
    digest = write(tmp_path, ROWS, "flac", SHARDS)
    index = Index.open(tmp_path)
    assert (len(index), index.encoding, index.digest, index.shards) == (3, "flac", digest, SHARDS)
    assert [Row(index.id(i), index.text(i), index.speaker(i), index.language(i), index.split(i),
                *(int(column[i]) for column in (index.samples, index.shard, index.offset, index.size)))
            for i in range(3)] == ROWS  # fmt: skip
    assert index.keys.tolist() == [seeding.key(row.id) for row in ROWS]
    kinds = [column.dtype.name for column in (index.samples, index.keys, index.shard, index.offset, index.size)]
    assert kinds == ["int64", "uint64", "int32", "int64", "int64"]
    assert index.speakers == ["anna", "bo"]
    assert index.speaker_codes.tolist() == [0, 1, 0]
    assert (index.splits, index.languages) == (["train", "test"], ["en", "zh", ""])
    assert np.load(tmp_path / "index" / "samples.npy").tolist() == [16_000, 8_000, 1]


def test_rows_of_a_split(tmp_path: Path) -> None:
    write(tmp_path, ROWS, "pcm16", SHARDS)
    index = Index.open(tmp_path)
    assert list(index.rows("train")) == [0, 2]
    assert index.rows(None) == range(3)
    assert index.rows("test") == range(1, 2)
    with pytest.raises(DatasetError, match=r"no split 'dev'; it has train, test"):
        index.rows("dev")


@pytest.mark.parametrize("where", [[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]])
@pytest.mark.parametrize("rows", [range(5, 9), np.array([2, 3, 7, 9], dtype=np.int32)])
def test_chosen_rows_are_a_stretch_where_they_can_be(rows: Rows, where: list[int]) -> None:
    found = chosen(rows, np.array(where, dtype=bool))
    assert list(found) == [row for row, wanted in zip(rows, where, strict=True) if wanted]
    assert isinstance(found, range) == (isinstance(rows, range) and where != [1, 0, 1, 1])
    assert taken(np.arange(0, 100, 10), found).tolist() == [10 * row for row in found]


@pytest.mark.parametrize("i", [-1, 3])
def test_no_utterance_there(tmp_path: Path, i: int) -> None:
    write(tmp_path, ROWS, "pcm16", SHARDS)
    with pytest.raises(IndexError):
        Index.open(tmp_path).text(i)


def test_pickles_as_its_folder(tmp_path: Path) -> None:
    write(tmp_path, ROWS, "pcm16", SHARDS)
    data = pickle.dumps(Index.open(tmp_path))
    assert len(data) < 500
    assert pickle.loads(data).id(2) == "ü3"  # noqa: S301 (made a line above)


def test_the_digest_follows_the_contents(tmp_path: Path) -> None:
    first = write(tmp_path / "a", ROWS, "pcm16", SHARDS)
    assert write(tmp_path / "b", ROWS, "pcm16", SHARDS) == first
    assert write(tmp_path / "b", [ROWS[0]._replace(text="one"), *ROWS[1:]], "pcm16", SHARDS) != first
    assert write(tmp_path / "b", ROWS, "flac", SHARDS) != first
    assert write(tmp_path / "b", ROWS, "pcm16", [SHARDS[0], ShardFile("shards/00001.h5", 2000, "ef")]) != first


def test_an_empty_index(tmp_path: Path) -> None:
    write(tmp_path, [], "pcm16", [])
    index = Index.open(tmp_path)
    assert len(index) == 0
    assert index.rows(None) == range(0)


def test_a_million_rows_open_in_milliseconds(tmp_path: Path) -> None:
    def rows() -> Iterator[Row]:
        for i in range(1_000_000):
            yield Row(str(i), "some text", "s", "en", "train", i, 0, 2 * i, 2)

    write(tmp_path, rows(), "pcm16", [SHARDS[0]])
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        index = Index.open(tmp_path)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.02
    assert (len(index), index.id(999_999), int(index.samples[999_999])) == (1_000_000, "999999", 999_999)


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"does not exist; make it with `allears prepare"):
        Index.open(tmp_path / "none")
    with pytest.raises(DatasetError, match="not a prepared dataset"):
        Index.open(tmp_path)
    (tmp_path / ".work").mkdir()
    with pytest.raises(DatasetError, match="incomplete"):
        Index.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="is a file"):
        Index.open(tmp_path / "file")


def test_another_version(tmp_path: Path) -> None:
    write(tmp_path, ROWS, "pcm16", SHARDS)
    path = tmp_path / "index" / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    with pytest.raises(DatasetError, match="version 99"):
        Index.open(tmp_path)


@pytest.mark.parametrize("name", ["index.json", "samples.npy", "ids.utf8", "ids.offsets.npy", "split_codes.npy"])
@pytest.mark.parametrize("damage", ["cut", "gone", "empty"])
def test_damage_is_named(tmp_path: Path, name: str, damage: str) -> None:
    write(tmp_path, ROWS, "pcm16", SHARDS)
    path = tmp_path / "index" / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-2] if damage == "cut" else b"")
    if name == "index.json" and damage == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DatasetError, match="is damaged") as caught:
        Index.open(tmp_path)
    assert "--overwrite" in str(caught.value)
