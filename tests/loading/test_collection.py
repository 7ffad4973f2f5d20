from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from allears.errors import DatasetError
from allears.loading.collection import Collection, SourceSettings
from allears.manifest import index

if TYPE_CHECKING:
    from pathlib import Path


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
    assert "whole speakers" in said


def test_where_speakers_are_few_single_utterances_are_held_out_and_it_is_said(tmp_path: Path) -> None:
    rest, held, said = Collection.open([SourceSettings(dataset=str(made(tmp_path / "d", ["a", "b"] * 150)))]).hold_out()
    assert (len(rest), len(held)) == (297, 3)
    assert "also trained on" in said


def test_of_few_utterances_none_is_held_out(tmp_path: Path) -> None:
    rest, held, said = Collection.open([SourceSettings(dataset=str(made(tmp_path / "d", ["a"])))]).hold_out()
    assert (len(rest), len(held)) == (1, 0)
    assert "no utterances are held out" in said
    assert np.array_equal(rest.lengths, [16000])
