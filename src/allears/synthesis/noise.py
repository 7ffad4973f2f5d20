"""Noise at a given signal-to-noise ratio: white, pink, brown, or the babble of other synthetic speakers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("white", "pink", "brown", "babble")

TALKERS = 5
"""How many voices speak at once in babble."""

_SLOPES = {"pink": 0.5, "brown": 1.0}
_LOWEST = 50.0 / 16_000
"""Under 50 Hz the spectrum is flat, or brown noise would be one slow wave that no microphone passes."""


def power(signal: NDArray[np.float32]) -> float:
    """Mean square of ``signal`` [samples]."""
    return float(np.mean(np.square(signal, dtype=np.float64)))


def coloured(kind: str, samples: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Gaussian noise [samples] whose power falls with frequency as 1, 1/f (pink) or 1/f² (brown)."""
    if kind == "white":
        return generator.standard_normal(samples, dtype=np.float32)
    size = 1 << (samples - 1).bit_length()  # a transform of a length with large prime factors takes ten times as long
    frequencies = np.maximum(np.fft.rfftfreq(size), _LOWEST)
    spectrum = np.fft.rfft(generator.standard_normal(size, dtype=np.float32))
    return np.fft.irfft(spectrum * frequencies ** -_SLOPES[kind], size)[:samples].astype(np.float32)


def babble(bank: NDArray[np.float32], samples: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """`TALKERS` stretches of ``bank`` [bank samples], each from a place of its own, at once [samples]."""
    starts = generator.integers(len(bank), size=(TALKERS, 1))
    places = (starts + np.arange(samples)) % len(bank)  # [talkers, samples]
    total: NDArray[np.float32] = bank[places].sum(axis=0)
    return total


def at_ratio(noise: NDArray[np.float32], speech_power: float, snr_db: float) -> NDArray[np.float32]:
    """``noise`` [samples] scaled so that its mean power lies ``snr_db`` decibels under ``speech_power``."""
    wanted = speech_power * 10.0 ** (-snr_db / 10.0)
    return noise * np.float32(np.sqrt(wanted / max(power(noise), 1e-20)))
