from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allears.audio.speed import at_rate, length_at, rate_of


@settings(max_examples=200, deadline=None)
@given(samples=st.integers(1, 60_000), rate=st.integers(8_000, 32_000))
def test_the_length_is_known_before(samples: int, rate: int) -> None:
    waveform = np.random.default_rng(0).normal(0, 3000, samples).astype(np.int16)
    assert len(at_rate(waveform, rate)) == length_at(np.array([samples]), rate)[0]


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_tempo_and_pitch_change_together(speed: float) -> None:
    waveform = (8000 * np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)).astype(np.int16)
    changed = at_rate(waveform, rate_of(speed))
    assert len(changed) / 16_000 == pytest.approx(1 / speed, abs=1e-4)
    spectrum = np.abs(np.fft.rfft(changed.astype(np.float64)))
    assert spectrum.argmax() * 16_000 / len(changed) == pytest.approx(1000 * speed, abs=1)
    assert changed[1000:-1000].max() == pytest.approx(8000, rel=0.01)


def test_a_speed_of_one_changes_no_sample() -> None:
    waveform = np.random.default_rng(0).integers(-32768, 32768, 1000).astype(np.int16)
    assert np.array_equal(at_rate(waveform, rate_of(1.0)), waveform)


def test_what_overshoots_is_clipped() -> None:
    loud = np.where(np.arange(4000) // 40 % 2, 32767, -32768).astype(np.int16)
    changed = at_rate(loud, rate_of(0.9)).astype(np.int64)
    assert (changed.min(), changed.max()) == (-32768, 32767)
    assert (np.sign(changed[400:800:5]) == np.sign(loud[np.arange(400, 800, 5) * 9 // 10])).mean() > 0.9
