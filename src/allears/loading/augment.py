"""What is drawn for an utterance's audio in an epoch, keyed by (seed, epoch, utterance) alone.

It is drawn where the plan is made, because it changes lengths, and again, to the same result, where audio is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from allears import seeding
from allears.audio.speed import at_rate, length_at, rate_of
from allears.settings import Settings
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_SPEED = seeding.key("augment.speed")


class AugmentSettings(Settings):
    """How the audio that is trained on is changed, anew each epoch.

    Attributes:
        speed: factors, of which each utterance gets one, all equally likely (one that stands twice: twice as likely).
            At 0.9 it is slower, deeper and longer, as in Kaldi. None: it stays as it is.
    """

    speed: tuple[Annotated[float, Field(ge=0.5, le=2.0)], ...] = Field(default=(), examples=[[0.9, 1.0, 1.1]])

    def build(self, seed: int) -> Augmentation:
        """What is drawn in a run with ``seed``."""
        return Augmentation(self, seed)


class Augmentation:
    """The draws of a run.

    Args:
        settings: what is drawn from.
        seed: of the run.

    Attributes:
        changes_lengths: whether an utterance may become longer or shorter.
    """

    def __init__(self, settings: AugmentSettings, seed: int) -> None:
        self._rates = np.array([rate_of(speed) for speed in settings.speed] or [SAMPLE_RATE], dtype=np.int64)
        self._seed = seed
        self.changes_lengths = bool((self._rates != SAMPLE_RATE).any())

    def lengths(self, lengths: Integers, keys: NDArray[np.uint64], epoch: int) -> Integers:
        """Samples [n] in ``epoch`` of utterances of ``lengths`` [n] and ``keys`` [n]: exactly what `waveform` gives."""
        return length_at(lengths, self._drawn(keys, epoch))

    def changes(self, key: int, epoch: int) -> bool:
        """Whether an utterance sounds in ``epoch`` other than it lies in the dataset."""
        return self.changes_lengths and bool(self._drawn(np.array([key], dtype=np.uint64), epoch)[0] != SAMPLE_RATE)

    def waveform(self, waveform: NDArray[np.int16], key: int, epoch: int) -> NDArray[np.int16]:
        """An utterance's ``waveform`` [n] as it sounds in ``epoch``."""
        (rate,) = self._drawn(np.array([key], dtype=np.uint64), epoch)
        return at_rate(waveform, int(rate))

    def longest(self, lengths: Integers) -> Integers:
        """The most samples [n] that utterances of ``lengths`` [n] can have in an epoch."""
        return length_at(lengths, int(self._rates.min()))

    def shortest(self, lengths: Integers) -> Integers:
        """The fewest."""
        return length_at(lengths, int(self._rates.max()))

    def expected(self, lengths: Integers) -> Integers:
        """The mean, rounded down."""
        total = sum((length_at(lengths, rate) for rate in self._rates.tolist()), np.zeros_like(lengths))
        return total // len(self._rates)

    def _drawn(self, keys: NDArray[np.uint64], epoch: int) -> Integers:
        """The rates [n] for which the utterances are taken."""
        if len(self._rates) == 1:
            return np.broadcast_to(self._rates, keys.shape)
        drawn: Integers = self._rates[seeding.hashed(keys, self._seed, epoch, _SPEED) % np.uint64(len(self._rates))]
        return drawn
