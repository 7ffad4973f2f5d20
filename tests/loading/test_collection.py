from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from allears.errors import DatasetError
from allears.files import digest
from allears.loading.collection import Collection, SourceSettings
from allears.manifest import index


def made(folder: Path, speakers: list[str]) -> Path:
    folder.mkdir()
    rows = [
        index.Row(f"u{n}", f"text {n}", speaker, "en", "train" if n % 2 else "dev", 16000 + n, 0, 0, 2)
        for n, speaker in enumerate(speakers)
    ]
    index.write(folder, rows, "pcm16", [])
    return folder


def test_sources_are_numbered_one_after_another(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one", ["a"] * 4), made(tmp_path / "two", ["b"] * 6)
    both = Collection.open([SourceSettings(dataset=str(one), split="dev"), SourceSettings(dataset=str(two))])
    assert [both.id(n) for n in range(len(both))] == ["u0", "u2", "u0", "u1", "u2", "u3", "u4", "u5"]
    assert both.lengths.tolist() == [16000, 16002, *range(16000, 16006)]
    assert both.text(3) == "text 1"
    some = both.only(both.lengths > 16002)
    assert [(some.id(n), some.speaker(n)) for n in range(len(some))] == [("u3", "b"), ("u4", "b"), ("u5", "b")]
    assert both.digest != some.digest


def test_an_unknown_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="test"):
        SourceSettings(dataset=str(made(tmp_path / "one", ["a"] * 4)), split="test").open()


def test_whole_speakers_are_held_out(tmp_path: Path) -> None:
    speakers = [f"speaker {n % 300}" for n in range(900)]
    rest, held, said = Collection.open([SourceSettings(dataset=str(made(tmp_path / "d", speakers)))]).hold_out()
    assert len(rest) + len(held) == 900
    assert 9 <= len(held) <= 13
    names = [{part.speaker(n) for n in range(len(part))} for part in (rest, held)]
    assert not names[0] & names[1]
    assert re.match(r"\d+ utterances, all of \d+ speakers, are held out; ", said)


def test_where_speakers_are_few_single_utterances_are_held_out_and_it_is_said(tmp_path: Path) -> None:
    rest, held, said = Collection.open([SourceSettings(dataset=str(made(tmp_path / "d", ["a", "b"] * 150)))]).hold_out()
    assert (len(rest), len(held)) == (297, 3)
    assert "also trained on" in said


def test_of_few_utterances_none_is_held_out(tmp_path: Path) -> None:
    rest, held, said = Collection.open([SourceSettings(dataset=str(made(tmp_path / "d", ["a"])))]).hold_out()
    assert (len(rest), len(held)) == (1, 0)
    assert "no utterances are held out" in said
    assert np.array_equal(rest.lengths, [16000])


def test_columns_are_read_where_they_lie(tmp_path: Path) -> None:
    folders = [made(tmp_path / name, ["a"] * count) for name, count in (("one", 5), ("two", 6), ("three", 4))]
    whole = Collection.open([SourceSettings(dataset=str(folder)) for folder in folders])
    some = whole.only(np.array([n % 4 != 2 for n in range(len(whole))]))
    for collection in (whole, some, whole.only(np.arange(len(whole)) >= 11), whole.only(np.arange(len(whole)) == 3)):
        column, count = collection.column("samples"), len(collection)
        values = [int(collection.parts[part][0].samples[row]) for part, row in map(collection.place, range(count))]
        assert column[:].tolist() == values
        assert column[2:9].tolist() == values[2:9]
        assert column[count:].tolist() == []
        chosen = np.random.default_rng(0).integers(0, count, 20).astype(np.int32)
        assert column[chosen].tolist() == [values[n] for n in chosen]
        collection.forget()
        column.forget()
        assert column[:].tolist() == values
    stretch = Collection.open([SourceSettings(dataset=str(folders[0]))]).column("samples")[1:4]
    assert not stretch.flags.owndata


def test_memory_of_columns_is_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    index.write(folder, (index.Row(str(n), "", "", "", "", n, 0, 0, 2) for n in range(400_000)), "pcm16", [])
    collection = Collection.open([SourceSettings(dataset=str(folder))])

    def mapped() -> int:
        """Bytes of the column that are in memory."""
        lines = iter(Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines())
        next(line for line in lines if line.endswith(str(folder / "index" / "samples.npy")))
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))

    assert collection.column("samples")[:].sum() == 400_000 * 399_999 // 2
    assert mapped() >= 400_000 * 8
    collection.forget()
    assert mapped() == 0


def test_a_digest_stays_what_it_was(tmp_path: Path) -> None:
    """Checkpoints hold it."""
    found = Collection.open([SourceSettings(dataset=str(made(tmp_path / "one", ["a"] * 4)), split="dev")])
    opened, _ = found.parts[0]
    assert found.digest == digest(opened.digest, np.array([0, 2], dtype=np.int64).tobytes())
