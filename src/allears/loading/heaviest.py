"""The micro-batches of an epoch that need the most memory: most frames with padding, most tokens with padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allears.loading.loader import EpochPlans


def heaviest(plans: EpochPlans, step: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(step, place) of the two, in the epoch that holds plan step ``step``: of most frames, and of most tokens."""
    plan, epoch, inside = plans.at(step)
    counts = np.diff(plan.offsets)

    def place_of(values: NDArray[np.integer]) -> tuple[int, int]:
        longest = np.zeros(len(counts), dtype=np.int64)
        filled = counts > 0
        longest[filled] = np.maximum.reduceat(values, plan.offsets[:-1][filled])
        first, place = divmod(int(np.argmax(counts * longest)), plan.micro_batches)
        return step - inside + first, place

    return place_of(plans.lengths(plan.utterances, epoch)), place_of(plans.token_counts(plan.utterances))
