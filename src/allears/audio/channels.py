"""Many channels → one: the mean of those that live.

A channel whose samples are all the same, from the file's first to its last, was never plugged in; it would only make
the others quieter. Which ones are dead is asked of the whole file, so that all segments of it have one loudness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allears.errors import AudioError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allears.audio.forward import Decoder

_BLOCK: Final = 1 << 14


def living(decoder: Decoder) -> NDArray[np.bool_]:
    """Which channels [channels] of a file live; reads on until all have shown it, mostly one block. Moves ``decoder``.

    Where a file is damaged, what lies before decides.
    """
    if decoder.channels == 1:
        return np.ones(1, dtype=np.bool_)
    lives = np.zeros(decoder.channels, dtype=np.bool_)
    try:
        decoder.seek(0)
        first = block = decoder.read(_BLOCK)
        while len(block) and not lives.all():
            lives |= (block != first[0]).any(axis=0)
            block = decoder.read(_BLOCK)
    except AudioError:
        pass  # said where it is met while reading
    return lives


def mean(block: NDArray[Any], lives: NDArray[np.bool_]) -> NDArray[Any]:
    """The mean [frames] of the channels of ``block`` [frames, channels] that live; of all, where none does."""
    if block.shape[1] == 1:
        return block[:, 0]
    chosen = block[:, lives] if lives.any() and not lives.all() else block
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is rejected later
        return chosen.mean(axis=1) if chosen.shape[1] > 1 else chosen[:, 0]
