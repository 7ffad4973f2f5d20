"""Whatever libsndfile opens, with what it keeps to itself: how much a header promised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import soundfile

from allears.audio.decode import UNREADABLE
from allears.errors import AudioError

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS: Final = {
    "File does not exist or is not a regular file (possibly a pipe?)": "Format not recognised",
    "Format not recognised": "Format not recognised",
    "Error : flac decoder lost sync": "its FLAC frames are broken or cut off",
    "Error : unknown error in flac decoder": "the checksum of a FLAC frame is wrong",
}
"""libsndfile's words that do not say what is wrong, and words that do: the file is there, it was looked at."""

_ENDLESS: Final = 1 << 62
"""So many frames mean that the header does not say; libsndfile tells of 2^63 - 1."""
_PLACEHOLDER: Final = 0x7FFFF000
"""A length of 32 bits from here on was written by who could not know it: sox and ffmpeg put such into a pipe."""
_LENGTH: Final = re.compile(r"^ *(?:data|SSND|BODY|Data Size|riff) +: (\d+) \(should be (\d+)\)$", re.MULTILINE)
_FRAMES: Final = re.compile(r"Calculated frame count \d+ does not match value from 'ds64' chunk of (\d+)")


class Sndfile:
    """A decoder [`forward.Decoder`]."""

    def __init__(self, source: str | BinaryIO, name: str) -> None:
        """Open ``source``, a path or an open file; ``name`` stands in errors.

        Raises:
            Refused: libsndfile does not open it.
        """
        self._name = name
        if not isinstance(source, str):
            source.seek(0)
        try:
            self._file = soundfile.SoundFile(source)
        except (soundfile.SoundFileError, RuntimeError, TypeError, OSError) as error:
            raise Refused(_words(error)) from error
        self.rate: int = self._file.samplerate
        self.channels: int = self._file.channels
        found: int = self._file.frames
        self.is_endless: bool = found >= _ENDLESS
        self.frames: int = found
        self.promised: int | None = None if self.is_endless else _promised(self._file.extra_info, found)
        whole = self._file.subtype in {"PCM_16", "PCM_S8", "PCM_U8"}
        self._kind = "int16" if whole and self.channels == 1 else "float32"
        self._position = 0

    def seek(self, frame: int) -> None:
        if frame == self._position:  # an empty file cannot be sought in, not even to its start
            return
        try:
            self._position = self._file.seek(frame)
        except (soundfile.SoundFileError, RuntimeError) as error:
            raise self._damaged(error) from error

    def read(self, frames: int) -> NDArray[Any]:
        try:
            block: NDArray[Any] = self._file.read(frames, dtype=self._kind, always_2d=True)
        except (soundfile.SoundFileError, RuntimeError, MemoryError) as error:
            raise self._damaged(error) from error
        self._position += len(block)
        return block

    def close(self) -> None:
        self._file.close()

    def _damaged(self, error: BaseException) -> AudioError:
        return AudioError(UNREADABLE, f"{self._name} is damaged: {_words(error)}.")


class Refused(Exception):  # noqa: N818 (no error yet: another decoder may open it)
    """libsndfile does not open a file; its text is why."""


def _promised(log: str, frames: int) -> int:
    """How many frames the header promises; libsndfile shortens a file to what is there, and only logs it."""
    if found := _FRAMES.search(log):
        return int(found[1])
    found = _LENGTH.search(log)
    if found is None:
        return frames
    promised, there = int(found[1]), int(found[2])
    return frames if promised >= _PLACEHOLDER or there == 0 else round(frames * promised / there)


def _words(error: BaseException) -> str:
    """The library's own words, without the path that it repeats and its full stop."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words = (getattr(error, "error_string", "") or str(error) or type(error).__name__).strip().rstrip(".")
    return WORDS.get(words, words)
