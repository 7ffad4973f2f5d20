"""Audio files as they come: any rate, any number of channels, anything that libsndfile opens.

open → seek → read in blocks, mean of the channels → resample (soxr HQ) → int16 at 16 kHz
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import soundfile
import soxr

from allears.audio.decode import UNREADABLE
from allears.errors import AudioError
from allears.reporting import counted
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from numpy.typing import NDArray

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
        path: where it lies.
        rate: its own samples per second.
        channels: how many it has.
        frames: its length in its own rate, as its header says.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        _check_regular(path)
        try:
            self._file = soundfile.SoundFile(path)
        except (soundfile.SoundFileError, RuntimeError, TypeError, OSError) as error:
            raise AudioError(UNREADABLE, f"{path} is not audio that can be read: {_reason(error)}.") from error
        self.rate: int = self._file.samplerate
        if self.rate < LOWEST_RATE:
            self._file.close()
            raise AudioError(
                UNREADABLE,
                f"{path} has {counted(self.rate, 'sample')} a second, and speech needs {LOWEST_RATE} or more; "
                "mend its header.",
            )
        self.channels: int = self._file.channels
        self.frames: int = self._file.frames
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, start: float = 0.0, duration: float | None = None) -> NDArray[np.int16]:
        """Samples [n] at 16 kHz, one channel, of ``duration`` seconds from ``start`` (None: to the end).

        Raises:
            AudioError: the segment lies outside the file, or the file is damaged, empty or constant there.
        """
        first, last = self._bounds(start, duration)
        blocks = list(self._blocks(first, last - first))
        samples = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int16)
        self._check_length(first, last, len(samples))
        if len(samples) and samples.min() == samples.max():
            raise AudioError(SILENT, f"{self.path}: all samples{_between(start, duration)} are {samples[0]}.")
        waveform = int16_at_16k(samples, self.rate, self.path)
        if len(waveform) == 0:
            raise AudioError(EMPTY, f"{self.path} has no samples{_between(start, duration)}.")
        if waveform.min() == waveform.max():
            raise AudioError(SILENT, f"{self.path}: all samples{_between(start, duration)} are {waveform[0]}.")
        return waveform

    def blocks(self) -> Iterator[NDArray[np.int16]]:
        """The same samples as `read` of the whole file, in blocks [n] and bounded memory; silence is no error.

        Raises:
            AudioError: the file is damaged or empty; what lies before has been given.
        """
        stream = soxr.ResampleStream(self.rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")
        frames = 0
        for block in self._blocks(0, self.frames):
            frames += len(block)
            if block.dtype == np.int16 and self.rate == SAMPLE_RATE:
                yield block
            else:
                yield _rounded(self._resampled(stream, _scaled(block, self.path), last=False))
        if self.rate != SAMPLE_RATE and frames:
            yield _rounded(self._resampled(stream, np.zeros(0, dtype=np.float32), last=True))
        self._check_length(0, self.frames, frames)
        if not frames:
            raise AudioError(EMPTY, f"{self.path} has no samples.")

    def _resampled(self, stream: Any, samples: NDArray[np.float32], last: bool) -> NDArray[np.float32]:
        """What ``stream`` gives out for ``samples`` [n]; it holds some back until the last ones."""
        if self.rate == SAMPLE_RATE:
            return samples
        try:
            return stream.resample_chunk(samples, last)  # type: ignore[no-any-return]
        except (ValueError, RuntimeError) as error:
            raise AudioError(
                UNREADABLE, f"{self.path}: {self.rate} Hz cannot be resampled: {_reason(error)}."
            ) from error

    def _bounds(self, start: float, duration: float | None) -> tuple[int, int]:
        """First and last + 1 frame of a segment, checked against the file's own length."""
        total = self.frames / self.rate
        if not (start >= 0 and (duration is None or duration >= 0)):
            raise AudioError(OUTSIDE, f"{self.path}: start {start:g} s or duration {duration} s is negative.")
        end = total if duration is None else start + duration
        if end > total + SLACK_SECONDS or (start > 0 and start >= total):
            raise AudioError(
                OUTSIDE, f"{self.path} has {total:.3f} s; the segment{_between(start, duration)} lies outside."
            )
        last = self.frames if end > total - SNAP_SECONDS else round(end * self.rate)
        return min(round(start * self.rate), last), last

    def _blocks(self, first: int, frames: int) -> Any:
        """Blocks of one channel: int16 as they lie where that is possible without loss, else float32 in ±1."""
        kind = "int16" if self._file.subtype in {"PCM_16", "PCM_S8", "PCM_U8"} and self.channels == 1 else "float32"
        try:
            if first != self._position:  # an empty file cannot be sought in, not even to its start
                self._position = self._file.seek(first)
            while frames > 0:
                block = self._file.read(min(frames, _BLOCK), dtype=kind, always_2d=True)  # [frames, channels]
                if len(block) == 0:
                    return
                frames -= len(block)
                self._position += len(block)
                yield block[:, 0] if self.channels == 1 else block.mean(axis=1)
        except (soundfile.SoundFileError, RuntimeError, MemoryError) as error:
            raise AudioError(UNREADABLE, f"{self.path} is damaged: {_reason(error)}.") from error

    def _check_length(self, first: int, last: int, read: int) -> None:
        """A file that ends before its header says has been cut off."""
        there = first + read
        promised = last
        if there == self.frames and self._file.format in {"WAV", "WAVEX"}:
            promised = _promised_by_wav(self._file.extra_info, self.frames)
        if promised - there > SLACK_SECONDS * self.rate:
            raise AudioError(
                UNREADABLE,
                f"{self.path} is cut off: {there / self.rate:.2f} of {promised / self.rate:.2f} s are there.",
            )


def read(path: str, start: float = 0.0, duration: float | None = None) -> NDArray[np.int16]:
    """Samples [n] at 16 kHz, one channel, of ``duration`` seconds from ``start`` (None: to the end) of a file.

    Raises:
        AudioError: with the reason why they cannot be had.
    """
    with AudioFile(path) as file:
        return file.read(start, duration)


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


def _promised_by_wav(log: str, frames: int) -> int:
    """How many frames a WAV header promises; libsndfile shortens the file to what is there and only logs it."""
    found = re.search(r"^data : (\d+) \(should be (\d+)\)$", log, re.MULTILINE)
    if found is None:
        return frames
    promised, there = int(found[1]), int(found[2])
    written_to_a_pipe = promised >= 0x7FFFF000  # sox and ffmpeg put a placeholder there
    return frames if written_to_a_pipe or there == 0 else round(frames * promised / there)


def int16_at_16k(samples: NDArray[Any], rate: int, path: str) -> NDArray[np.int16]:
    """Resample [n] to 16 kHz where needed; floats are clipped and rounded to the range of int16."""
    if samples.dtype == np.int16 and rate == SAMPLE_RATE:
        return samples
    scaled = _scaled(samples, path)
    if rate != SAMPLE_RATE and len(scaled):
        try:
            scaled = soxr.resample(scaled, rate, SAMPLE_RATE, quality="HQ")
        except (ValueError, RuntimeError) as error:
            raise AudioError(UNREADABLE, f"{path}: {rate} Hz cannot be resampled: {_reason(error)}.") from error
    return _rounded(scaled)


def _scaled(samples: NDArray[Any], path: str) -> NDArray[np.float32]:
    """Samples [n] as float32 in the range of int16."""
    scaled: NDArray[np.float32] = samples.astype(np.float32)
    scaled *= np.float32(1.0 if samples.dtype == np.int16 else 32768.0)
    if not np.isfinite(scaled).all():
        raise AudioError(UNREADABLE, f"{path} holds samples that are not finite numbers.")
    return scaled


def _rounded(scaled: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.rint(np.clip(scaled, -32768.0, 32767.0)).astype(np.int16)


def _between(start: float, duration: float | None) -> str:
    if duration is not None:
        return f" from {start:g} to {start + duration:g} s"
    return f" from {start:g} s on" if start else ""


def _reason(error: BaseException) -> str:
    """The library's own words, without the path that it repeats and its full stop."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words = (getattr(error, "error_string", "") or str(error) or type(error).__name__).strip().rstrip(".")
    return "Format not recognised" if words.startswith("File does not exist") else words  # it does: it was looked at
