"""A long recording → pieces that a model can hear at once, cut where nobody speaks, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

LONGEST = 30 * SAMPLE_RATE
"""Longest piece, in samples; a recording that is not longer stays whole."""
SHORTEST = 15 * SAMPLE_RATE
"""Shortest piece, but for the last of a recording."""
_FRAME = SAMPLE_RATE // 100
_WINDOW = 20
"""Frames of 10 ms over which loudness is taken: longer than the closure of a stop, which is silent too."""
_NEARLY = 2.0
"""Windows of up to so many times the least power count as equally quiet: 3 dB."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a recording: ``samples`` [n] at 16 kHz, the first of them being number ``start`` of the whole."""

    start: int
    samples: NDArray[np.int16]


def pieces(blocks: Iterable[NDArray[np.int16]]) -> Iterator[Piece]:
    """Cut a recording, given as blocks [n] of samples in a row, into pieces of 15 to 30 s; no sample is lost.

    Each cut is in the middle of the quietest stretch between 15 and 30 s after the one before. A recording without any
    sample has no piece.
    """
    start = 0
    waiting: list[NDArray[np.int16]] = []
    held = 0
    for block in blocks:
        waiting.append(block)
        held += len(block)
        if held > LONGEST:
            samples = np.concatenate(waiting)
            begin = 0
            while len(samples) - begin > LONGEST:
                end = begin + SHORTEST + quietest(samples[begin + SHORTEST : begin + LONGEST])
                yield Piece(start + begin, samples[begin:end])
                begin = end
            start += begin
            waiting = [samples[begin:].copy()]  # a view would keep the whole block alive
            held = len(waiting[0])
    if held:
        yield Piece(start, np.concatenate(waiting))


def quietest(samples: NDArray[np.int16]) -> int:
    """The middle of the quietest stretch of ``samples`` [n], as a place among them.

    Power is the variance over 0.2 s, so that an offset of the signal does not count. Of the windows within 3 dB of the
    least, the longest run is taken, and of equal ones the last.
    """
    frames = len(samples) // _FRAME
    if frames < _WINDOW:
        return len(samples) // 2
    framed = samples[: frames * _FRAME].reshape(frames, _FRAME).astype(np.float64)  # [frames, samples of a frame]
    mean = _sliding(framed.mean(axis=1))
    power = _sliding((framed**2).mean(axis=1)) - mean**2  # [windows]
    quiet = power <= _NEARLY * power.min() + 1.0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    longest = len(begins) - 1 - int(np.argmax((ends - begins)[::-1]))
    # The run's first window begins at frame `begins`, its last one ends at frame `ends` - 1 + _WINDOW.
    return int(begins[longest] + ends[longest] - 1 + _WINDOW) * _FRAME // 2


def _sliding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over each window of `_WINDOW` of ``values`` [frames], [frames - _WINDOW + 1]."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return (sums[_WINDOW:] - sums[:-_WINDOW]) / _WINDOW
