from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allears.evaluation.segments import LONGEST, SHORTEST, pieces, quietest
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "librispeech_mini"


def noise(seconds: float, level: float, seed: int) -> NDArray[np.int16]:
    samples = np.random.default_rng(seed).standard_normal(round(seconds * SAMPLE_RATE)) * level
    return samples.astype(np.int16)


def in_blocks(samples: NDArray[np.int16], size: int) -> list[NDArray[np.int16]]:
    return [samples[begin : begin + size] for begin in range(0, len(samples), size)]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4 * LONGEST), st.sampled_from([1000, 16_384, 1 << 20, 1 << 22]), st.integers(0, 99))
def test_no_sample_is_lost_or_doubled(length: int, size: int, seed: int) -> None:
    samples = noise(length / SAMPLE_RATE, 3000, seed)
    found = list(pieces(in_blocks(samples, size)))
    assert [one.start for one in found] == np.cumsum([0, *(len(one.samples) for one in found[:-1])]).tolist()
    np.testing.assert_array_equal(np.concatenate([one.samples for one in found]), samples)
    assert all(SHORTEST <= len(one.samples) <= LONGEST for one in found[:-1])
    assert len(found[-1].samples) <= LONGEST


def test_what_is_short_stays_whole() -> None:
    assert list(pieces([])) == []
    assert [len(one.samples) for one in pieces(in_blocks(noise(30, 3000, 0), 70_001))] == [LONGEST]
    assert len(list(pieces([noise(30.001, 3000, 0)]))) == 2


def with_pauses(
    words: list[NDArray[np.int16]], pause: float, floor: float, offset: int = 0
) -> tuple[NDArray[np.int16], list[tuple[int, int]]]:
    """Words with pauses between (and noise of ``floor`` over all), and where the pauses are."""
    parts: list[NDArray[Any]] = []
    places = []
    at = 0
    for word in words:
        gap = np.zeros(round(pause * SAMPLE_RATE), dtype=np.int16)
        places.append((at + len(word), at + len(word) + len(gap)))
        parts += [word, gap]
        at += len(word) + len(gap)
    whole = np.concatenate(parts).astype(np.float64)
    whole += np.random.default_rng(1).standard_normal(len(whole)) * floor + offset
    return np.clip(whole, -32768, 32767).astype(np.int16), places


@pytest.mark.parametrize("floor", [0.0, 30.0, 300.0])
@pytest.mark.parametrize("offset", [0, 4000])
def test_cuts_lie_inside_pauses_whatever_the_noise(floor: float, offset: int) -> None:
    draw = np.random.default_rng(0)
    words = [noise(draw.uniform(1, 9), 2000, n) for n in range(25)]
    samples, pauses = with_pauses(words, 0.35, floor, offset)
    found = list(pieces(in_blocks(samples, 100_000)))
    assert len(found) >= 5
    for one in found[1:]:
        assert any(begin + 1600 < one.start < end - 1600 for begin, end in pauses), one.start / SAMPLE_RATE


@pytest.mark.skipif(not REAL.exists(), reason=f"needs {REAL.name} in shared/data")
def test_real_sentences_are_cut_between_them() -> None:
    from allears.audio.files import read

    paths = sorted((REAL / "audio").rglob("*.flac"))[:12]
    words = [read(str(path)) for path in paths]
    samples, _ = with_pauses(words, 0.6, 0.0)
    begins = np.cumsum([0, *(len(word) + round(0.6 * SAMPLE_RATE) for word in words)])
    found = list(pieces(in_blocks(samples, 1 << 20)))
    assert len(found) >= 3
    for one in found[1:]:  # between two sentences, or in a pause of a speaker: nothing loud within 0.1 s
        near = samples[one.start - 1600 : one.start + 1600].astype(np.float64)
        loud = samples[one.start - 8 * SAMPLE_RATE : one.start + 8 * SAMPLE_RATE].astype(np.float64)
        assert near.std() < 0.1 * loud.std()
        assert one.start not in begins


def test_the_longest_of_equal_pauses_is_cut_in_its_middle() -> None:
    rate = SAMPLE_RATE
    samples = noise(15, 3000, 0)
    samples[2 * rate : 2 * rate + rate // 2] = 0
    samples[6 * rate : 7 * rate] = 0
    samples[9 * rate : 9 * rate + rate // 4] = 0
    assert abs(quietest(samples) - 6.5 * rate) <= 160
    assert quietest(samples[:1000]) == 500


def test_one_level_is_cut_somewhere_sensible() -> None:
    assert 0 < quietest(np.zeros(15 * SAMPLE_RATE, dtype=np.int16)) < 15 * SAMPLE_RATE
    assert 0 < quietest(np.full(15 * SAMPLE_RATE, -32768, dtype=np.int16)) < 15 * SAMPLE_RATE
