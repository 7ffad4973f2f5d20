"""Audio inside of what ffmpeg's libraries open: m4a, mp4, webm, amr, wma …, by PyAV (the extra ``video``).

Only containers that hold their own sound are opened: a playlist, which names other files, is none of them.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from allears.audio.decode import UNREADABLE
from allears.audio.forward import Forward
from allears.errors import AudioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

REMEDY: Final = "install PyAV, as with `pip install 'allears[video]'`"
_TIMED: Final = ("mov", "matroska")
"""Containers whose header has the length of their sound; ffmpeg guesses that of the others from the first seconds."""
_CONTAINERS: Final = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,amr,aac,asf,avi,flv,mpegts,mpeg,wv,ape,tta,ac3,eac3,ogg,wav,w64,aiff,caf,"
    "nistsphere,flac,voc,au"
)
_OPTIONS: Final = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "", "err_detect": "crccheck+explode"}


def is_installed() -> bool:
    """Whether PyAV is."""
    return importlib.util.find_spec("av") is not None


class Refused(Exception):  # noqa: N818 (as libsndfile's: the reason that stands in the end may be another's)
    """Not a container that is opened here; its text is why."""


class Container:
    """A decoder [`forward.Decoder`]: the first stream of sound, or the one that is marked as the default."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Open ``file``; ``name`` stands in errors.

        Raises:
            Refused: ffmpeg does not know it.
            AudioError: it holds no sound, or is damaged at its start.
        """
        self._source = file
        self._name = name
        self._container: Any = None
        self.rate = 0
        blocks = self._blocks()
        try:
            first = next(blocks)
        except StopIteration:
            first = np.zeros((0, self._stream.channels or 1), dtype=np.float32)
        self.channels: int = first.shape[1]
        self.promised: int | None = self._promised()
        self._forward = Forward(self._again(first, blocks))
        self.seek, self.read = self._forward.seek, self._forward.read

    @property
    def frames(self) -> int | None:
        return self._forward.end

    def _again(self, first: NDArray[Any], rest: Iterator[NDArray[Any]]) -> Any:
        """What begins again: the first time with what has been read already."""
        begun: list[Iterator[NDArray[Any]]] = [_joined(first, rest)]
        return lambda: begun.pop() if begun else self._blocks()

    def _blocks(self) -> Iterator[NDArray[Any]]:
        """float32 blocks [frames, channels] from the start."""
        import av

        self.close()
        stream = self._opened()
        rate = channels = 0
        try:
            for frame in self._container.decode(stream):
                block = _samples(frame)
                if not rate:
                    self.rate = rate = frame.sample_rate
                    channels = block.shape[1]
                if (frame.sample_rate, block.shape[1]) != (rate, channels):
                    raise AudioError(
                        UNREADABLE,
                        f"{self._name} changes from {rate} Hz and {channels} channels to {frame.sample_rate} Hz and "
                        f"{block.shape[1]}; part it there.",
                    )
                yield block
        except (av.error.FFmpegError, OSError, ValueError, RuntimeError, MemoryError) as error:
            raise AudioError(UNREADABLE, f"{self._name} is damaged: {_words(error)}.") from error

    def _opened(self) -> Any:
        """Open the container; gives its stream of sound."""
        import av

        av.logging.set_level(None)
        self._source.seek(0)
        try:
            self._container = av.open(_Places(self._source), options=_OPTIONS, metadata_errors="replace")
        except (av.error.FFmpegError, OSError, ValueError, RuntimeError) as error:
            raise Refused(_words(error)) from error
        self._stream = self._container.streams.best("audio")
        if self._stream is None:
            kinds = ", ".join(sorted({one.type for one in self._container.streams})) or "nothing"
            raise AudioError(UNREADABLE, f"{self._name} holds no sound ({kinds}).")
        if self._stream.codec_context is None:
            raise AudioError(UNREADABLE, f"{self._name} holds sound in a code that ffmpeg does not know.")
        self.rate = self._stream.sample_rate
        return self._stream

    def _promised(self) -> int | None:
        """How many frames the container tells of, where it knows."""
        if not self._container.format.name.startswith(_TIMED):
            return None
        if self._stream.duration is not None:
            seconds = float(self._stream.duration * self._stream.time_base)
        elif self._container.duration is not None and len(self._container.streams) == 1:
            seconds = self._container.duration / 1e6
        else:
            return None
        return round(seconds * self.rate)

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
            self._container = None


class _Places:
    """A file that may be sent to any place, as damaged headers do: where there is none, -1 is said, as ffmpeg asks."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self.tell = file.tell
        self._file = file

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._file.seek(offset, whence)
        except (OSError, ValueError, OverflowError):
            return -1


def _joined(first: NDArray[Any], rest: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    yield first
    yield from rest


def _samples(frame: Any) -> NDArray[np.float32]:
    """[frames, channels] in ±1 of a decoded frame, whose samples are uint8, int16, int32, float or double."""
    found: NDArray[Any] = frame.to_ndarray()  # [channels, frames] where planar, else [1, frames · channels]
    block = found.T if frame.format.is_planar else found.reshape(-1, len(frame.layout.channels))
    if block.dtype == np.uint8:
        return (block.astype(np.float32) - np.float32(128)) / np.float32(128)
    with np.errstate(over="ignore"):  # what is not finite is rejected later
        floats: NDArray[np.float32] = block.astype(np.float32)
    return floats / np.float32(np.iinfo(block.dtype).max + 1) if block.dtype.kind == "i" else floats


def _words(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip().rstrip(".")
