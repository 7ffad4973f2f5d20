"""Which rank keeps the others waiting: each one's own seconds travel in the step's exchange, and the slow one is named.

Own are the seconds in which a rank waits for its loader, and those of its forward and backward; on CUDA these are what
its host takes, as the device's come later. Where ranks have different numbers of micro-batches, the larger share takes
longer by plan: seconds are compared by micro-batch.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from allears.loading.plan import subtrees
from allears.types import Slowest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from allears.training.exchange import Spent
    from allears.world import World

WINDOW = 50
"""Steps over which a rank must be slow, and after which it is looked at again."""
QUIET = 500
"""Steps for which the same rank is not named again."""
RATIO = 1.5
"""So many times as long as the others' median is slow…"""
SHARE = 0.1
"""…if the difference is also this share of a step."""

_KINDS = (
    ("wait for data", "give it more loader.workers, or storage that is as fast as theirs"),
    ("compute", "see what else runs there, and whether its processor or GPU is throttled"),
)


class Stragglers:
    """Looks at the ranks of a training; made on all ranks together.

    Args:
        world: who trains.
        micro_batches: places in a step.
    """

    def __init__(self, world: World, micro_batches: int) -> None:
        self._leaves = subtrees(micro_batches, world.size)
        self._hosts = world.gather(socket.gethostname())
        self._own: deque[NDArray[np.float64]] = deque(maxlen=WINDOW)  # [ranks, 2]: data and compute, by micro-batch
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._named: dict[int, int] = {}

    def add(self, spent: Sequence[Spent]) -> Slowest:
        """Take down a step, and say which rank took longest.

        Args:
            spent: of each place, see `allears.training.exchange.Verdict`.
        """
        own = np.array([spent[leaf.start][1:] for leaf in self._leaves])
        ran = [max(1, sum(spent[place].ran for place in leaf)) for leaf in self._leaves]
        self._own.append(own / np.array(ran)[:, None])
        seconds = own.sum(1)
        return Slowest(int(seconds.argmax()), round(float(seconds.max()), 6))

    def notes(self, step: int, seconds: float) -> list[str]:
        """After each `WINDOW` steps, what to say of ranks that have been slow in them.

        Args:
            step: the plan step that was added last.
            seconds: that it took.
        """
        self._steps.append(seconds)
        if len(self._leaves) == 1 or len(self._steps) < WINDOW:
            return []
        medians, whole = np.median(self._own, axis=0), float(np.median(self._steps))
        self._steps.clear()
        return [
            self._note(rank, kind, mine, others)
            for rank, leaf in enumerate(self._leaves)
            for kind in range(len(_KINDS))
            for mine, others in [_compared(medians[:, kind], rank, len(leaf))]
            if mine > RATIO * others and mine - others >= SHARE * whole and self._is_news(rank, step)
        ]

    def _is_news(self, rank: int, step: int) -> bool:
        if step - self._named.get(rank, step - QUIET) < QUIET:
            return False
        self._named[rank] = step
        return True

    def _note(self, rank: int, kind: int, mine: float, others: float) -> str:
        what, remedy = _KINDS[kind]
        return (
            f"note: rank {rank} ({self._hosts[rank]}) is slow: over the last {WINDOW} steps its {what} takes "
            f"{mine:.2f} s a step where the others' median is {others:.2f} s, and all wait for it; {remedy}."
        )


def _compared(medians: NDArray[np.float64], rank: int, places: int) -> tuple[float, float]:
    """Seconds of ``rank`` in a step, and what the others' median would be with as many micro-batches."""
    return float(medians[rank]) * places, float(np.median(np.delete(medians, rank))) * places
