"""The micro-batches of an epoch that need the most memory: most frames with padding, most tokens with padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from allears.loading.epochs import EpochPlans
    from allears.loading.plan import Numbers


def heaviest(plans: EpochPlans, step: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(step, place) of the two, in the epoch that holds plan step ``step``: of most frames, and of most tokens."""
    plan, number, inside = plans.at(step)
    epoch = plans.epoch(number)

    def place_of(longest: Numbers) -> tuple[int, int]:
        first, place = divmod(int(np.argmax(np.diff(plan.offsets) * longest[:])), plan.micro_batches)
        return step - inside + first, place

    return place_of(epoch.longest), place_of(epoch.most_tokens)
