"""What is measured of a waveform: level, clipping, silence, offset, noise and bandwidth, in one pass over its samples.

Frames of 20 ms without overlap give powers; all but clipping and bandwidth are functions of these powers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allears.preflight.settings import PreflightSettings

    Floats = NDArray[np.float32]

FRAME = SAMPLE_RATE // 50
FULL_SCALE = 32768
NEAR_FULL_SCALE = 32700
"""Resampling a clipped recording moves its flat tops a little."""
LEAST_CLIPPED = 4096
"""Below an eighth of full scale, equal samples at the extreme are coarse steps of a quiet recording."""
BAND_FRAME = 512
BAND_FRAMES = 64
BAND = 500.0
"""Width in Hz of the bands in which energy is looked for."""
BAND_BELOW = 60.0
"""Decibels below the strongest band at which one is empty: fricatives are far above, rounding noise far below."""
LONE_FRAMES = 8
"""From so many frames on the strongest one does not count: a click, or an edge that was cut, has every frequency."""
BAND_FLOOR = 40.0
"""Power of a band of one frame that rounding to int16 alone may reach, Hann-weighted: its mean is 8 (measured)."""


class Sound(NamedTuple):
    """Measures of one utterance.

    Attributes:
        level: root mean square in dBFS; the offset is not counted.
        clipped: share of the samples that are clipped.
        offset: mean of the samples as a share of full scale.
        silent: share of the frames that are silent.
        pause: longest silent stretch in seconds.
        snr: estimated signal-to-noise ratio in decibels; not a number where there is nothing to measure.
        bandwidth: upper edge in Hz of the highest band that holds anything; 0 for none.
    """

    level: float
    clipped: float
    offset: float
    silent: float
    pause: float
    snr: float
    bandwidth: float


def measure(waveform: NDArray[np.int16], settings: PreflightSettings) -> Sound:
    """Measures of ``waveform`` [n] at 16 kHz, n > 0."""
    size = min(FRAME, len(waveform))
    frames = waveform[: len(waveform) // size * size].reshape(-1, size).astype(np.float32)  # [frames, samples]
    means = frames.mean(axis=1)
    powers = np.maximum(np.einsum("fs,fs->f", frames, frames) / size - means * means, 0)
    ordered = np.sort(powers)
    silent = powers < _silence(ordered, settings)
    return Sound(
        level=decibels(float(powers.mean()) / FULL_SCALE**2),
        clipped=clipped(waveform),
        offset=float(means.mean()) / FULL_SCALE,
        silent=float(silent.mean()),
        pause=_longest_run(silent) * size / SAMPLE_RATE,
        snr=signal_to_noise(ordered),
        bandwidth=bandwidth(waveform),
    )


def decibels(power: float) -> float:
    """``power`` in decibels; nothing is -120."""
    return 10 * float(np.log10(max(power, 1e-12)))


def _percentile(ordered: Floats, percent: int) -> float:
    """Of numbers in ascending order [n], n > 0; the nearest of them, which takes a tenth of the time of NumPy's own."""
    return float(ordered[round(percent / 100 * (len(ordered) - 1))])


def _silence(ordered: Floats, settings: PreflightSettings) -> float:
    """Power below which a frame is silent, from the powers of all in ascending order [n]."""
    absolute = FULL_SCALE**2 * 10 ** (settings.silence_level / 10)
    return max(absolute, _percentile(ordered, 95) * 10 ** (-settings.silence_below / 10))


def _longest_run(where: NDArray[np.bool_]) -> int:
    """Length of the longest stretch of ``where`` [n] that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], where, [False]))))
    return int(np.diff(edges)[::2].max(initial=0))


def clipped(waveform: NDArray[np.int16]) -> float:
    """Share of samples at full scale, or with both neighbours equal at the waveform's own extreme, if that is more."""
    flat = 0
    for extreme in (int(waveform.max()), int(waveform.min())):
        if abs(extreme) >= LEAST_CLIPPED:
            at = waveform == extreme
            flat += int(np.count_nonzero(at[:-2] & at[1:-1] & at[2:]))
    full = np.count_nonzero(waveform >= NEAR_FULL_SCALE) + np.count_nonzero(waveform <= -NEAR_FULL_SCALE)
    return max(flat, int(full)) / len(waveform)


def signal_to_noise(ordered: Floats) -> float:
    """Estimated signal-to-noise ratio in decibels from the powers of frames in ascending order [n].

    The tenth percentile is taken for the noise, the 95th for speech in that noise, as NIST's STNR takes the ends of the
    histogram of frame energies. Frames of digital silence hold neither. WADA-SNR (Kim and Stern, Interspeech 2008) was
    tried beside it: on clean speech it scatters from -9 to 100 dB, this from 18 up.
    """
    heard = ordered[np.searchsorted(ordered, 1, side="right") :]
    if len(heard) == 0:
        return float("nan")
    noise, loud = _percentile(heard, 10), _percentile(heard, 95)
    return decibels((loud - noise) / noise)


@cache
def _window() -> Floats:
    return np.hanning(BAND_FRAME).astype(np.float32)


@cache
def _bands() -> Floats:
    """Averages bins [bins, bands]; the bin of 0 Hz is in none."""
    width = round(BAND / SAMPLE_RATE * BAND_FRAME)  # bins
    bands = np.repeat(np.eye(BAND_FRAME // 2 // width, dtype=np.float32), width, axis=0) / np.float32(width)
    return np.concatenate([np.zeros_like(bands[:1]), bands])


def bandwidth(waveform: NDArray[np.int16]) -> float:
    """Upper edge in Hz of the highest band of 500 Hz that holds energy in two of 64 frames; 0 where none does."""
    if len(waveform) < BAND_FRAME:
        waveform = np.pad(waveform, (0, BAND_FRAME - len(waveform)))
    whole = len(waveform) // BAND_FRAME
    places = np.linspace(0, whole - 1, min(whole, BAND_FRAMES)).astype(np.int64)
    frames = waveform[: whole * BAND_FRAME].reshape(whole, BAND_FRAME)[places].astype(np.float32)  # [frames, samples]
    frames -= frames.mean()  # an offset would leak, and be the strongest band
    frames *= _window()
    banded = np.square(np.abs(np.fft.rfft(frames, axis=1))) @ _bands()  # [frames, bands]
    lone = 2 if len(frames) >= LONE_FRAMES else 1
    strongest = np.partition(banded, -lone, axis=0)[-lone]  # [bands]
    floor = max(float(strongest.max()) * 10 ** (-BAND_BELOW / 10), BAND_FLOOR * BAND_FRAME)
    held = np.flatnonzero(strongest > floor)
    return float(held[-1] + 1) * BAND if len(held) else 0.0
