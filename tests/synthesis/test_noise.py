from __future__ import annotations

import numpy as np
import pytest

from allears.seeding import generator
from allears.synthesis.noise import at_ratio, babble, coloured, power


@pytest.mark.parametrize(("kind", "decibels_per_octave"), [("white", 0.0), ("pink", -3.0), ("brown", -6.0)])
def test_colour(kind: str, decibels_per_octave: float) -> None:
    noise = coloured(kind, 200_000, generator(1))
    spectrum = np.abs(np.fft.rfft(noise)) ** 2
    frequencies = np.fft.rfftfreq(len(noise), 1 / 16_000)
    octaves = [
        10 * np.log10(spectrum[(frequencies >= low) & (frequencies < 2 * low)].mean()) for low in (200, 400, 800, 1600)
    ]
    assert np.diff(octaves) == pytest.approx([decibels_per_octave] * 3, abs=0.5)


def test_noise_depends_on_its_generator_alone() -> None:
    assert np.array_equal(coloured("pink", 999, generator(1)), coloured("pink", 999, generator(1)))
    assert not np.array_equal(coloured("pink", 999, generator(1)), coloured("pink", 999, generator(2)))


@pytest.mark.parametrize("samples", [1, 2, 100, 16_001])
@pytest.mark.parametrize("kind", ["white", "pink", "brown"])
def test_any_length(kind: str, samples: int) -> None:
    noise = coloured(kind, samples, generator(1))
    assert noise.shape == (samples,)
    assert noise.dtype == np.float32


def test_babble_is_cut_from_the_bank_and_wraps_round() -> None:
    bank = np.arange(1000, dtype=np.float32)
    cut = babble(bank, 5000, generator(1))
    assert cut.shape == (5000,)
    assert np.allclose(cut[:1000], cut[1000:2000])
    assert len(np.unique(cut)) > 100


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 20.0])
def test_ratio(snr_db: float) -> None:
    noise = at_ratio(coloured("pink", 16_000, generator(1)), 0.25, snr_db)
    assert 10 * np.log10(0.25 / power(noise)) == pytest.approx(snr_db, abs=0.01)
