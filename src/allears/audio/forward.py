"""What reads audio in any order, and how one that only goes forward is made to: an earlier place means a new start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


class Decoder(Protocol):
    """An open audio file as its decoder sees it.

    Attributes:
        rate: samples per second.
        channels: how many.
        promised: how many the header tells of, there or not; None where it does not.
    """

    rate: int
    channels: int
    promised: int | None

    @property
    def frames(self) -> int | None:
        """How many there are; None where the header does not tell and the end has not been met."""

    def seek(self, frame: int) -> None:
        """Go to ``frame``; past the end, `read` gives nothing.

        Raises:
            AudioError: the file is damaged.
        """

    def read(self, frames: int) -> NDArray[Any]:
        """At most ``frames`` frames [frames, channels], int16 or float32 in ±1; none at the end only.

        Raises:
            AudioError: the file is damaged.
        """

    def close(self) -> None:
        """Let go of the file."""


class Forward:
    """Blocks that come in order, to be read from anywhere.

    Attributes:
        end: how many frames there are, once the last one has been met.
    """

    def __init__(self, start: Callable[[], Iterator[NDArray[Any]]]) -> None:
        """``start`` begins again: blocks [frames, channels] of any size from the first frame on."""
        self._start = start
        self._blocks = start()
        self._held: NDArray[Any] | None = None
        self._position = 0
        self.end: int | None = None

    def seek(self, frame: int) -> None:
        """Go to ``frame`` [`Decoder.seek`]."""
        if frame < self._position:
            self._blocks, self._held, self._position = self._start(), None, 0
        while self._position < frame and len(self._next(frame - self._position)):
            pass

    def read(self, frames: int) -> NDArray[Any]:
        """At most ``frames`` frames, all of them but at the end [`Decoder.read`]."""
        parts = [self._next(frames)]
        there = len(parts[0])
        while 0 < there < frames and len(part := self._next(frames - there)):
            parts.append(part)
            there += len(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _next(self, frames: int) -> NDArray[Any]:
        """At most ``frames`` frames of one block."""
        if self._held is None or not len(self._held):
            self._held = next((block for block in self._blocks if len(block)), None)
        if self._held is None:
            self.end = self._position
            return np.zeros((0, 1), dtype=np.float32)
        given, self._held = self._held[:frames], self._held[frames:]
        self._position += len(given)
        return given
