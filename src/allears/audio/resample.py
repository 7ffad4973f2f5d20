"""Samples of any kind and rate → int16 at 16 kHz (soxr HQ).

Floats lie in ±1. What goes a little over is clipped, as a sound card would; `LOUDEST` tells it from another scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import soxr

from allears.audio.decode import UNREADABLE
from allears.errors import AudioError
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOUDEST: Final = 16.0
"""Floats up to here, 24 dB above full scale, are clipped to ±1; more are int16 values kept as floats."""


class Stream:
    """Resamples one channel block by block: together the same samples as `int16_at_16k` of the whole."""

    def __init__(self, rate: int, name: str) -> None:
        self._rate = rate
        self._name = name
        self._stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")

    def add(self, samples: NDArray[Any], *, last: bool = False) -> NDArray[np.int16]:
        """What comes out for ``samples`` [n]; some is held back until the ``last`` ones.

        Raises:
            AudioError: as `int16_at_16k`.
        """
        if self._rate == SAMPLE_RATE:
            return int16_at_16k(samples, self._rate, self._name)
        try:
            return _rounded(self._stream.resample_chunk(_scaled(samples, self._name), last))
        except (ValueError, RuntimeError) as error:
            raise _impossible(self._name, self._rate, error) from error


def int16_at_16k(samples: NDArray[Any], rate: int, name: str) -> NDArray[np.int16]:
    """Resample [n] to 16 kHz where needed; floats in ±1 are clipped and rounded to the range of int16.

    Raises:
        AudioError: they are not finite, far above 1, or of a rate from which no way leads; ``name`` stands in it.
    """
    if samples.dtype == np.int16 and rate == SAMPLE_RATE:
        return samples
    scaled = _scaled(samples, name)
    if rate != SAMPLE_RATE and len(scaled):
        try:
            scaled = soxr.resample(scaled, rate, SAMPLE_RATE, quality="HQ")
        except (ValueError, RuntimeError) as error:
            raise _impossible(name, rate, error) from error
    return _rounded(scaled)


def _impossible(name: str, rate: int, error: Exception) -> AudioError:
    return AudioError(UNREADABLE, f"{name}: {rate} Hz cannot be resampled: {str(error).strip().rstrip('.')}.")


def _scaled(samples: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Samples [n] as float32 in the range of int16."""
    scaled: NDArray[np.float32] = samples.astype(np.float32)
    if samples.dtype == np.int16:
        return scaled
    peak = np.abs(scaled).max(initial=0.0)
    if not np.isfinite(peak):
        raise AudioError(UNREADABLE, f"{name} holds samples that are not finite numbers.")
    if peak > LOUDEST:
        raise AudioError(
            UNREADABLE,
            f"{name} holds float samples up to {peak:g}, and they must lie in ±1; divide them, by 32768 where they are "
            "16-bit values.",
        )
    scaled *= np.float32(32768.0)
    return scaled


def _rounded(scaled: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.rint(np.clip(scaled, -32768.0, 32767.0)).astype(np.int16)
