"""What is measured of a waveform, on signals whose measures are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soxr

from allears.audio.files import read
from allears.audio.resample import int16_at_16k
from allears.preflight.settings import PreflightSettings
from allears.preflight.sound import bandwidth, clipped, measure, signal_to_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = PreflightSettings()
REAL = Path(__file__).parents[2].parent / "shared" / "data"


def noise(seconds: float, deviation: float, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, deviation, round(seconds * 16_000))


def bursts(seconds: float, deviation: float = 3000.0) -> NDArray[np.float64]:
    """Noise that comes and goes four times a second, as syllables do."""
    found = noise(seconds, deviation)
    return found * (np.sin(2 * np.pi * 4 * np.arange(len(found)) / 16_000) > 0)


def int16(samples: NDArray[Any]) -> NDArray[np.int16]:
    found: NDArray[np.int16] = np.clip(np.rint(samples), -32768, 32767).astype(np.int16)
    return found


def test_level_and_offset() -> None:
    found = measure(int16(noise(2, 3277) + 1638), SETTINGS)
    assert found.level == pytest.approx(-20, abs=0.1)
    assert found.offset == pytest.approx(0.05, abs=0.001)
    assert (found.silent, found.pause, found.bandwidth) == (0, 0, 8000)


@pytest.mark.case("guide B (asked.md #14)")
def test_silence() -> None:
    whole = measure(int16(noise(1, 2)), SETTINGS)
    assert (whole.silent, whole.pause) == (1, 1)
    sound = noise(1, 3000)
    found = measure(int16(np.concatenate([sound, noise(3, 1), sound, noise(1, 1)])), SETTINGS)
    assert found.silent == pytest.approx(4 / 6, abs=0.01)
    assert found.pause == pytest.approx(3, abs=0.03)
    quiet = measure(int16(np.concatenate([noise(1, 20_000), noise(1, 100)])), SETTINGS)  # -46 dB: not below -60 dBFS
    assert quiet.silent == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("samples", [1, 2, 319, 320, 321, 512, 1000])
@pytest.mark.parametrize("value", [0, 1, 32767, -32768])
def test_any_length_and_any_constant(samples: int, value: int) -> None:
    found = measure(np.full(samples, value, np.int16), SETTINGS)
    assert found.silent == 1
    assert found.level == -120
    assert np.isnan(found.snr)
    assert found.offset == pytest.approx(value / 32768)


def test_clipping() -> None:
    wave = 30_000 * np.sin(2 * np.pi * 200 * np.arange(16_000) / 16_000)
    assert clipped(int16(wave)) == 0
    assert clipped(int16(1.5 * wave)) > 0.2
    assert clipped(int16(np.clip(wave, -9000, 9000))) > 0.2  # cut off below full scale
    assert clipped(int16(np.clip(wave, -20_000, 40_000))) > 0.1  # on one side
    assert clipped(int16(wave / 30_000 * 5)) == 0  # coarse steps of a quiet recording
    assert clipped(int16(noise(1, 3000))) == 0


@pytest.mark.parametrize("decibels", [0, 5, 10, 20])
def test_signal_to_noise_grows_with_it(decibels: int) -> None:
    speech = bursts(4)
    power = float(np.mean(speech**2))
    added = noise(4, (power / 10.0 ** (decibels / 10)) ** 0.5, seed=1)
    found = measure(int16(np.add(speech, added)), SETTINGS).snr
    assert found == pytest.approx(decibels + 3, abs=1.5)  # half of the time it is silent, so the bursts are 3 dB louder


def test_digital_silence_is_no_noise() -> None:
    powers = np.array([0, 0, 0, 0, 100, 100, 100_000, 100_000], np.float32)
    assert signal_to_noise(powers) == pytest.approx(30, abs=0.1)
    assert np.isnan(signal_to_noise(powers[:4]))


def test_bandwidth() -> None:
    wide = int16(noise(2, 2000))
    assert bandwidth(wide) == 8000
    narrow = int16_at_16k(soxr.resample(wide.astype(np.float32) / 32768, 16_000, 8000), 8000, "it")
    assert bandwidth(narrow) == 4000
    narrow[10_000] = 20_000  # a click has every frequency
    assert bandwidth(narrow) == 4000
    assert bandwidth(int16(narrow + 8000.0)) == 4000  # an offset is no band
    assert bandwidth(np.zeros(16_000, np.int16)) == 0


@pytest.mark.skipif(not REAL.is_dir(), reason="the folder of real speech is not beside the repository")
def test_real_speech_is_told_from_what_was_recorded_at_8_khz() -> None:
    for corpus, least, most in (("librispeech_mini", 6000, 8000), ("fsdd", 3500, 4000)):
        for path in sorted((REAL / corpus / "audio").iterdir())[::20][:20]:
            found = measure(read(str(path)), SETTINGS)
            assert least <= found.bandwidth <= most, path
            assert found.silent < 0.7
            assert found.clipped <= 0.001
