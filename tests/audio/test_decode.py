"""Segments of shards."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from allears.audio.decode import decode, encode
from allears.errors import AudioError
from allears.types import Segment


@given(st.integers(0, 2**32 - 1), st.integers(1, 5_000))
def test_both_encodings_round_trip(seed: int, samples: int) -> None:
    waveform = np.random.default_rng(seed).integers(-32768, 32768, samples).astype(np.int16)
    for segment in (Segment("pcm16", encode(waveform, "pcm16")), Segment("flac", encode(waveform, "flac"))):
        found = decode(segment)
        assert found.dtype == np.int16
        np.testing.assert_array_equal(found, waveform)
        found[0] = 1  # callers perturb in place


def test_flac_is_the_same_bytes_each_time_and_smaller() -> None:
    waveform = (3000 * np.sin(np.arange(16_000) / 20)).astype(np.int16)
    assert encode(waveform, "flac") == encode(waveform, "flac")
    assert len(encode(waveform, "flac")) < len(encode(waveform, "pcm16")) / 2


def test_damaged_segments_are_named() -> None:
    with pytest.raises(AudioError, match="whole number") as caught:
        decode(Segment("pcm16", b"abc"))
    assert caught.value.reason == "unreadable"
    with pytest.raises(AudioError, match="not FLAC"):
        decode(Segment("flac", b"\0" * 100))
    stream = io.BytesIO()
    soundfile.write(stream, np.zeros(100, dtype=np.int16), 8_000, format="FLAC")
    with pytest.raises(AudioError, match="8000 Hz"):
        decode(Segment("flac", stream.getvalue()))


def test_damaged_flac_gives_fewer_samples() -> None:
    """Every flipped bit and every cut is found by the frames' checksums, whatever libsndfile would make of it."""
    draw = np.random.default_rng(0)
    waveform = draw.normal(0, 3000, 40_000).astype(np.int16)
    whole = encode(waveform, "flac")
    for place in draw.integers(42, len(whole), 40).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draw.integers(8))
        assert len(decode(Segment("flac", bytes(damaged)))) < len(waveform)
    assert len(decode(Segment("flac", whole[:-3]))) < len(waveform)
