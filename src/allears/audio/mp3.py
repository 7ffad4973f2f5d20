"""MP3: its frames are found first, so that what stands before, between and behind them is known, and then decoded.

libsndfile reads MP3 too, but its decoder prints on the terminal, steps over damage without a word, and gives up where
other bytes stand before the first frame. Both give the same samples, to one step of int16; miniaudio clips at ±1.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import miniaudio
import numpy as np

from allears.audio.decode import UNREADABLE
from allears.audio.forward import Forward
from allears.audio.kinds import id3_bytes, is_mpeg
from allears.errors import AudioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SEARCHED: Final = 1 << 20
"""How far into a file, in bytes, the first frame is looked for."""
_SURE: Final = 4
"""So many frames behind one another are no accident."""
_BLOCK: Final = 1 << 12
_KBPS: Final = {  # (MPEG 1, layer) → kbit/s by the index of a header; 0 and 15 are no lengths
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""In Hz, by MPEG version (1, 2, 2.5) as a header has it."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a file that belong together.

    Attributes:
        first: byte of the first one.
        last: byte behind the last whole one.
        count: how many hold sound.
        promised: how many the first one, a Xing or Info header, tells of; None without it.
    """

    first: int
    last: int
    count: int
    promised: int | None


class Mp3:
    """A decoder [`forward.Decoder`]; it holds the file's bytes, which are a tenth of its samples."""

    def __init__(self, data: bytes, found: Frames, name: str) -> None:
        """Open the frames that were ``found`` in ``data``; ``name`` stands in errors.

        Raises:
            AudioError: they cannot be decoded.
        """
        self._data = data[found.first : found.last]
        self._name = name
        try:
            about = miniaudio.mp3_get_info(self._data)
        except miniaudio.MiniaudioError as error:
            raise self._damaged() from error
        self.rate: int = about.sample_rate
        self.channels: int = about.nchannels
        self.frames: int = about.num_frames
        lost = 0 if found.promised is None else max(0, found.promised - found.count)
        self.promised: int | None = about.num_frames + lost * _samples(self._data)
        self._forward = Forward(self._blocks)
        self.seek, self.read = self._forward.seek, self._forward.read

    def _blocks(self) -> Iterator[NDArray[Any]]:
        how = (miniaudio.SampleFormat.FLOAT32, self.channels, self.rate, _BLOCK)
        try:
            for block in miniaudio.stream_memory(self._data, *how):
                yield np.frombuffer(block, dtype=np.float32).reshape(-1, self.channels)
        except miniaudio.MiniaudioError as error:
            raise self._damaged() from error

    def _damaged(self) -> AudioError:
        return AudioError(UNREADABLE, f"{self._name} is damaged: its MP3 frames cannot be decoded.")

    def close(self) -> None:
        self._data = b""


def opened(file: BinaryIO, name: str) -> Mp3 | None:
    """A decoder of ``file``; None where it has no MP3 frames.

    Raises:
        AudioError: it is damaged; ``name`` stands in it.
    """
    file.seek(0)
    data = file.read()
    found = frames(data, name)
    return None if found is None else Mp3(data, found, name)


def frames(data: bytes, name: str) -> Frames | None:
    """The frames in ``data``, a whole file; None where there are none.

    Raises:
        AudioError: something else stands between them, or a second stream behind the first; ``name`` stands in it.
    """
    first = _find(data, id3_bytes(data))
    if first is None:
        return None
    place, count, last = first, 0, len(data)
    like = data[first : first + 4]
    while (size := _size(data[place : place + 4], like)) and place + size <= last:
        place += size
        count += 1
    again = None if size else _find(data, place)  # else the last frame is cut off
    if again is not None:
        what = "another MP3 stream begins at" if _promise(data, again) else f"no MP3 frame from byte {place} to"
        raise AudioError(UNREADABLE, f"{name} is damaged: {what} byte {again}.")
    promised = _promise(data, first)
    if promised is None:
        return Frames(first, place, count, None)
    if count - 1 > promised + 1:
        raise AudioError(
            UNREADABLE,
            f"{name} holds {count - 1:,} MP3 frames and its header tells of {promised:,}; another stream may be joined "
            "to it: part the two, or mend the header.",
        )
    return Frames(first, place, count - 1, promised)


def _find(data: bytes, start: int) -> int | None:
    """The first place from ``start`` on where frames follow one another, up to the file's end or long enough."""
    place = data.find(b"\xff", start, start + _SEARCHED)
    while place >= 0:
        if _is_chain(data, place):
            return place
        place = data.find(b"\xff", place + 1, start + _SEARCHED)
    return None


def _is_chain(data: bytes, first: int) -> bool:
    place, like = first, data[first : first + 4]
    for _ in range(_SURE):
        size = _size(data[place : place + 4], like)
        if not size:
            return place > first and place == len(data)
        place += size
    return True


@functools.lru_cache(maxsize=1024)
def _size(head: bytes, like: bytes) -> int:
    """The bytes of the frame that begins with ``head``; 0 where none does, or one of another version, layer or rate."""
    if not is_mpeg(head) or (head[1] ^ like[1]) & 0x1E or (head[2] ^ like[2]) & 0x0C:
        return 0
    version, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    index, rate, padding = head[2] >> 4, head[2] >> 2 & 3, head[2] >> 1 & 1
    if rate == 3 or not 0 < index < 15:
        return 0
    bits = _KBPS[version == 3, layer][index - 1] * 1000
    hertz = _RATES[version][rate]
    if layer == 1:
        return (12 * bits // hertz + padding) * 4
    return _samples(head) // 8 * bits // hertz + padding


def _samples(head: bytes) -> int:
    """How many samples a channel has in a frame that begins with ``head``."""
    version, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    return 384 if layer == 1 else 576 if layer == 3 and version != 3 else 1152


def _promise(data: bytes, place: int) -> int | None:
    """How many frames the Xing or Info header in the frame at ``place`` tells of; None without one."""
    frame = data[place : place + 64]
    at = max(frame.find(b"Xing"), frame.find(b"Info"))
    if at < 0 or not data[place + at + 7] & 1:
        return None
    return int.from_bytes(data[place + at + 8 : place + at + 12], "big")
