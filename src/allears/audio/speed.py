"""Another speed: tempo and pitch change together, as with Kaldi's ``sox speed`` (Ko et al., Interspeech 2015).

At a speed of 0.9 the samples are taken for a recording at 14,400 Hz, which is then resampled to 16 kHz: longer, deeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allears.audio.resample import int16_at_16k
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def rate_of(speed: float) -> int:
    """The rate in Hz for which 16 kHz samples are taken at ``speed``."""
    return round(speed * SAMPLE_RATE)


def length_at(samples: NDArray[np.int64], rate: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """How many samples [n] `at_rate` makes of ``samples`` [n]: to the nearest, in integers, as soxr counts them."""
    return (2 * samples * SAMPLE_RATE + rate) // (2 * rate)


def at_rate(waveform: NDArray[np.int16], rate: int) -> NDArray[np.int16]:
    """``waveform`` [n] at 16 kHz as it sounds when it is taken for a recording at ``rate`` Hz [`length_at`]."""
    return int16_at_16k(waveform, rate, "an utterance")
