"""From a segment of a shard to samples, and back."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import miniaudio
import numpy as np
import soundfile

from allears.errors import AudioError
from allears.types import SAMPLE_RATE, Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNREADABLE = "unreadable"


def decode(segment: Segment) -> NDArray[np.int16]:
    """Samples [n] at 16 kHz, writable; fewer than there were where FLAC is damaged.

    Raises:
        AudioError: the bytes are not what the encoding says.
    """
    if segment.encoding == "pcm16":
        if len(segment.data) % 2:
            raise AudioError(UNREADABLE, f"{len(segment.data)} bytes are no whole number of 16-bit samples.")
        return np.frombuffer(segment.data, dtype="<i2").astype(np.int16)
    try:
        # Twice as fast as libsndfile from memory, the same samples, and outside of the interpreter's lock too.
        found = miniaudio.flac_read_s16(segment.data)
    except miniaudio.MiniaudioError as error:
        raise AudioError(UNREADABLE, f"A segment of {len(segment.data)} bytes is not FLAC: {error}.") from error
    if found.sample_rate != SAMPLE_RATE or found.nchannels != 1:
        raise AudioError(
            UNREADABLE, f"A FLAC segment has {found.sample_rate} Hz and {found.nchannels} channels, not 16 kHz and one."
        )
    return np.frombuffer(found.samples, dtype=np.int16)


def encode(samples: NDArray[np.int16], encoding: str) -> bytes:
    """Samples [n] at 16 kHz as they lie in a shard; the same bytes each time."""
    if encoding == "pcm16":
        return samples.astype("<i2").tobytes()
    stream = io.BytesIO()
    soundfile.write(stream, samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return stream.getvalue()
