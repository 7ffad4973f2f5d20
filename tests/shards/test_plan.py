"""Which utterance goes into which shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allears.shards.plan import bounds, plan
from allears.types import Utterance

if TYPE_CHECKING:
    from pathlib import Path


@given(st.lists(st.floats(0, 20_000), max_size=300))
def test_every_utterance_is_in_one_shard(seconds: list[float]) -> None:
    found = bounds(np.array(seconds))
    assert found[-1] == len(seconds)
    assert (np.diff(found) > 0).all()
    if seconds:
        assert found[0] == 0


@pytest.mark.parametrize(
    ("hours", "shards"),
    [(0.02, 1), (0.36, 11), (1, 30), (10, 32), (32, 32), (100, 100), (1000, 1000)],
)
def test_shards_suit_the_size_of_the_corpus(hours: float, shards: int) -> None:
    seconds = np.full(round(hours * 360), 10.0)
    assert abs(len(bounds(seconds)) - 1 - shards) <= 1 + shards // 50


def test_many_utterances_without_a_length_are_cut_too() -> None:
    assert np.diff(bounds(np.zeros(1_000_000))).max() <= 20_000


def test_the_digest_follows_what_decides_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"123")
    one = Utterance("u1", str(tmp_path / "a.wav"), "one")
    first = plan([one], ["pcm16"]).digest
    assert plan([one], ["pcm16"]).digest == first
    assert plan([one], ["flac"]).digest != first
    assert plan([Utterance("u1", one.audio, "two")], ["pcm16"]).digest != first
    (tmp_path / "a.wav").write_bytes(b"1234")
    assert plan([one], ["pcm16"]).digest != first
    (tmp_path / "a.wav").unlink()
    assert plan([one], ["pcm16"]).digest != first
