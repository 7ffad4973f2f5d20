"""FLAC whose header has no length, as an encoder leaves it that writes into a pipe: libsndfile finds no end there."""

from __future__ import annotations

from typing import BinaryIO, Final

import miniaudio

from allears.audio.decode import UNREADABLE
from allears.audio.kinds import id3_bytes
from allears.audio.mended import mended
from allears.errors import AudioError

_LENGTH: Final = 21
"""Where the last 4 bits of a byte and 4 more bytes say how many frames a stream has (RFC 9639, section 8.2)."""
_BLOCK: Final = 1 << 14


def with_length(file: BinaryIO, name: str) -> BinaryIO:
    """``file``, whose streaminfo has 0 frames, with as many as miniaudio counts; what is decoded later is checked then.

    A stream that was cut off between two frames does not show it.

    Raises:
        AudioError: it cannot be counted; ``name`` stands in it.
    """
    file.seek(0)
    data = file.read()
    try:
        frames = _counted(data)
    except miniaudio.MiniaudioError as error:
        raise AudioError(
            UNREADABLE, f"{name} is damaged: its FLAC header has no length, nor can it be found."
        ) from error
    place = id3_bytes(data) + _LENGTH
    return mended(file, place, (data[place] >> 4 << 36 | frames).to_bytes(5))


def _counted(data: bytes) -> int:
    about = miniaudio.flac_get_info(data)
    how = (miniaudio.SampleFormat.SIGNED16, about.nchannels, about.sample_rate, _BLOCK)
    return sum(len(block) for block in miniaudio.stream_memory(data, *how)) // int(about.nchannels)
