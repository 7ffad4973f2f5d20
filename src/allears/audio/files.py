"""Audio files as they come: any rate, any number of channels, anything that a decoder opens.

open → seek → read in blocks, mean of the living channels → resample (soxr HQ) → int16 at 16 kHz
"""

from __future__ import annotations

import io
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final, Self

import numpy as np

from allears.audio import channels
from allears.audio.decode import UNREADABLE
from allears.audio.opening import opened
from allears.audio.resample import Stream, int16_at_16k
from allears.errors import AudioError
from allears.reporting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

    from numpy.typing import NDArray

    from allears.audio.forward import Decoder

MISSING: Final = "missing file"
EMPTY: Final = "empty"
SILENT: Final = "digitally silent"
TOO_SHORT: Final = "too short"
OUTSIDE: Final = "segment outside the file"

SLACK_SECONDS: Final = 0.1
"""How far a segment may reach past the end of its file: corpora round their times."""
SNAP_SECONDS: Final = 0.001
"""An end this near before the end of the file means the end of the file: corpora round to milliseconds."""
LOWEST_RATE: Final = 1000
"""In Hz; speech has no word in it below. A header that says less is damaged."""
_BLOCK: Final = 1 << 20


class AudioFile:
    """An open audio file; a context manager.

    Attributes:
        path: where it lies, or what it is called.
        rate: its own samples per second.
        channels: how many it has.
    """

    def __init__(self, path: str, source: BinaryIO | bytes | None = None) -> None:
        """Open the file at ``path``, or ``source``, a file object or bytes that are called ``path`` in errors.

        Raises:
            AudioError: with the reason why it cannot be read.
        """
        self.path = path
        self._file = _file(path, source)
        try:
            self._decoder: Decoder = opened(self._file, path, None if source is not None else path)
        except OSError as error:
            self._file.close()
            raise AudioError(UNREADABLE, f"{path} cannot be read: {_reason(error)}.") from error
        except BaseException:
            self._file.close()
            raise
        self.rate: int = self._decoder.rate
        self.channels: int = self._decoder.channels
        self._lives: NDArray[np.bool_] | None = None
        if self.rate < LOWEST_RATE:
            self.close()
            raise AudioError(
                UNREADABLE,
                f"{path} has {counted(self.rate, 'sample')} a second, and speech needs {LOWEST_RATE} or more; "
                "mend its header.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def frames(self) -> int | None:
        """Its length in its own rate; None where its header does not tell and its end has not been met."""
        return self._decoder.frames

    def close(self) -> None:
        """Close the file, and the file object that it was made of."""
        self._decoder.close()
        self._file.close()

    def read(self, start: float = 0.0, duration: float | None = None, channel: int | None = None) -> NDArray[np.int16]:
        """Samples [n] at 16 kHz of ``duration`` seconds from ``start`` (None: to the end).

        Args:
            start: in seconds.
            duration: in seconds.
            channel: which one, from 0; None for the mean of all that are not dead.

        Raises:
            AudioError: the segment lies outside the file, or the file is damaged, empty or constant there.
        """
        if channel is not None and channel >= self.channels:
            raise AudioError(OUTSIDE, f"{self.path} has no channel {channel}: it has {self.channels}, counted from 0.")
        first, last = self._bounds(start, duration)
        blocks = list(self._blocks(first, last, channel))
        samples = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int16)
        self._bounds(start, duration)  # once more, for now the end may be known
        self._check_length(first + len(samples), last)
        self._check_sound(samples, start, duration, channel)
        waveform = int16_at_16k(samples, self.rate, self.path)
        if len(waveform) == 0:
            raise AudioError(EMPTY, f"{self.path} has no samples{_between(start, duration)}.")
        self._check_sound(waveform, start, duration, channel)
        return waveform

    def blocks(self) -> Iterator[NDArray[np.int16]]:
        """The same samples as `read` of the whole file, in blocks [n] and bounded memory; silence is no error.

        Raises:
            AudioError: the file is damaged or empty; what lies before has been given.
        """
        stream = Stream(self.rate, self.path)
        frames = 0
        for block in self._blocks(0, self.frames):
            frames += len(block)
            yield stream.add(block)
        rest = stream.add(np.zeros(0, dtype=np.float32), last=True)
        if len(rest):
            yield rest
        self._check_length(frames, self.frames)
        if not frames:
            raise AudioError(EMPTY, f"{self.path} has no samples.")

    def _bounds(self, start: float, duration: float | None) -> tuple[int, int | None]:
        """First and last + 1 frame of a segment, checked against the file's own length where that is known."""
        if not (start >= 0 and (duration is None or duration >= 0)):
            raise AudioError(OUTSIDE, f"{self.path}: start {start:g} s or duration {duration} s is negative.")
        frames = self.frames
        if frames is None:
            return round(start * self.rate), None if duration is None else round((start + duration) * self.rate)
        total = frames / self.rate
        end = total if duration is None else start + duration
        if end > total + SLACK_SECONDS or (start > 0 and start >= total):
            self._check_length(frames, frames)
            raise AudioError(
                OUTSIDE, f"{self.path} has {total:.3f} s; the segment{_between(start, duration)} lies outside."
            )
        last = frames if end > total - SNAP_SECONDS else round(end * self.rate)
        return min(round(start * self.rate), last), last

    def _blocks(self, first: int, last: int | None, channel: int | None = None) -> Iterator[NDArray[Any]]:
        """Blocks [n] of one channel: int16 as they lie where that is possible without loss, else float32 in ±1."""
        if self._lives is None:
            self._lives = channels.living(self._decoder)
        self._decoder.seek(first)
        while last is None or first < last:
            block = self._decoder.read(_BLOCK if last is None else min(last - first, _BLOCK))
            if len(block) == 0:
                return
            first += len(block)
            yield channels.mean(block, self._lives) if channel is None else block[:, channel]

    def _check_length(self, there: int, last: int | None) -> None:
        """A file that ends before its header says has been cut off; ``there`` frames of ``last`` were met."""
        promised = last if last is not None else there
        if there == self.frames and self._decoder.promised is not None:
            promised = self._decoder.promised
        if promised - there > SLACK_SECONDS * self.rate:
            raise AudioError(
                UNREADABLE,
                f"{self.path} is cut off: {there / self.rate:.2f} of {promised / self.rate:.2f} s are there.",
            )

    def _check_sound(self, samples: NDArray[Any], start: float, duration: float | None, channel: int | None) -> None:
        if not len(samples) or samples.min() != samples.max():
            return
        cancel = channel is None and self._lives is not None and np.count_nonzero(self._lives) > 1
        how = "its channels cancel one another, and " if cancel else ""
        raise AudioError(SILENT, f"{self.path}: {how}all samples{_between(start, duration)} are {samples[0]:g}.")


def read(path: str, start: float = 0.0, duration: float | None = None) -> NDArray[np.int16]:
    """Samples [n] at 16 kHz, one channel, of ``duration`` seconds from ``start`` (None: to the end) of a file.

    Raises:
        AudioError: with the reason why they cannot be had.
    """
    with AudioFile(path) as file:
        return file.read(start, duration)


def _file(path: str, source: BinaryIO | bytes | None) -> BinaryIO:
    """The bytes to read."""
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    if source is not None:
        if source.seek(0, io.SEEK_END) == 0:
            raise AudioError(EMPTY, f"{path} has 0 bytes.")
        return source
    _check_regular(path)
    try:
        return open(path, "rb")  # noqa: PTH123 (a str from a manifest; closed with the decoder)
    except OSError as error:
        raise AudioError(UNREADABLE, f"{path} cannot be opened: {_reason(error)}.") from error


def _check_regular(path: str) -> None:
    """A pipe would block for ever, and libsndfile's words for a folder or an empty file help nobody."""
    try:
        found = os.stat(path)  # noqa: PTH116 (a str from a manifest; a Path for each of a million files costs time)
    except FileNotFoundError as error:
        raise AudioError(MISSING, f"{path} does not exist.") from error
    except (OSError, ValueError) as error:
        raise AudioError(UNREADABLE, f"{path} cannot be opened: {_reason(error)}.") from error
    if stat.S_ISDIR(found.st_mode):
        raise AudioError(UNREADABLE, f"{path} is a folder where an audio file is needed.")
    if not stat.S_ISREG(found.st_mode):
        raise AudioError(UNREADABLE, f"{path} is not a regular file.")
    if found.st_size == 0:
        raise AudioError(EMPTY, f"{path} has 0 bytes.")


def _between(start: float, duration: float | None) -> str:
    if duration is not None:
        return f" from {start:g} to {start + duration:g} s"
    return f" from {start:g} s on" if start else ""


def _reason(error: BaseException) -> str:
    """The system's own words, without the path that they repeat and their full stop."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().rstrip(".") or type(error).__name__
