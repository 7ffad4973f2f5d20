"""From a segment of a shard to samples, and back."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from allears.errors import AudioError
from allears.types import SAMPLE_RATE, Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNREADABLE = "unreadable"


def decode(segment: Segment) -> NDArray[np.int16]:
    """Samples [n] at 16 kHz, writable.

    Raises:
        AudioError: the bytes are not what the encoding says.
    """
    if segment.encoding == "pcm16":
        if len(segment.data) % 2:
            raise AudioError(UNREADABLE, f"{len(segment.data)} bytes are no whole number of 16-bit samples.")
        return np.frombuffer(segment.data, dtype="<i2").astype(np.int16)
    try:
        samples, rate = soundfile.read(io.BytesIO(segment.data), dtype="int16")
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise AudioError(UNREADABLE, f"A segment of {len(segment.data)} bytes is not FLAC: {error}.") from error
    if rate != SAMPLE_RATE or samples.ndim != 1:
        raise AudioError(
            UNREADABLE, f"A FLAC segment has {rate} Hz and shape {samples.shape}, not 16 kHz and one channel."
        )
    return samples  # type: ignore[no-any-return]


def encode(samples: NDArray[np.int16], encoding: str) -> bytes:
    """Samples [n] at 16 kHz as they lie in a shard; the same bytes each time."""
    if encoding == "pcm16":
        return samples.astype("<i2").tobytes()
    stream = io.BytesIO()
    soundfile.write(stream, samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return stream.getvalue()
