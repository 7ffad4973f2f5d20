"""How far an error rate may be off by the luck of its test set: the bootstrap of Bisani and Ney, ICASSP 2004.

The set is drawn again, with replacement, many times; the middle 95 % of the rates are the interval. Errors of one
speaker come together, so whole speakers are drawn where there are enough of them, else utterances, which makes the
interval too narrow if few speakers speak much: the result says which it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allears import seeding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from allears.scoring.rates import Count

LEVEL = 0.95
RESAMPLES = 1000
FEWEST_SPEAKERS = 20
"""From so many on speakers are drawn: of fewer the interval would rest on too few values."""
_KEY = seeding.key("bootstrap")
_AT_ONCE = 1 << 20


class Bootstrap:
    """Draws a test set again.

    Attributes:
        over: what is drawn: ``speakers`` or ``utterances``.
    """

    def __init__(self, speakers: Sequence[str]) -> None:
        """``speakers`` [utterances]: empty where unknown."""
        names, codes = np.unique(np.array(speakers, dtype=str), return_inverse=True)
        by_speaker = all(speakers) and len(names) >= FEWEST_SPEAKERS
        self.over = "speakers" if by_speaker else "utterances"
        self._groups: NDArray[np.intp] = codes if by_speaker else np.arange(len(speakers))

    def interval(self, counts: Sequence[Count]) -> list[float] | None:
        """Lower and upper end of the rate of ``counts`` [utterances]; none where there are not two to draw from.

        The draws are keyed: the same counts have the same interval on every machine.
        """
        groups = int(self._groups.max()) + 1 if len(counts) else 0
        if groups < 2:
            return None
        errors = np.bincount(self._groups, [one.errors for one in counts])
        units = np.bincount(self._groups, [one.units for one in counts])
        generator = seeding.generator(_KEY)
        rates: list[NDArray[np.float64]] = []
        block = max(1, _AT_ONCE // groups)
        for done in range(0, RESAMPLES, block):
            draws = generator.integers(groups, size=(min(block, RESAMPLES - done), groups))  # [resamples, groups]
            wrong, whole = errors[draws].sum(axis=1), units[draws].sum(axis=1)
            rates.append(np.where(whole > 0, wrong / np.maximum(whole, 1), wrong > 0))
        ends = np.quantile(np.concatenate(rates), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return [float(end) for end in ends]
