"""What one step of a plan holds: the utterances of each micro-batch, their padding, their cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from allears.loading.tokens import token_counts
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allears.loading.material import Material
    from allears.loading.plan import PlanSettings


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one device runs at a time.

    Attributes:
        seconds: float64 [utterances], in the plan's order.
        tokens: target tokens of all of them.
        cost: seconds with padding, and the quadratic part of attention.
    """

    seconds: NDArray[np.float64]
    tokens: int
    cost: float

    @property
    def longest(self) -> float:
        """Seconds that each is padded to; 0 when it is empty."""
        return float(self.seconds.max(initial=0.0))

    @property
    def padding(self) -> float:
        """Share of the padded audio that is padding."""
        return _padding([self])


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One optimiser step, over all devices.

    Attributes:
        step: the plan step, from 0.
        epoch: from 0.
        inside: the step's number in its epoch, from 0.
        steps_per_epoch: how many there are.
        micro_batches: in the order of their places.
    """

    step: int
    epoch: int
    inside: int
    steps_per_epoch: int
    micro_batches: list[MicroBatch]

    @property
    def padding(self) -> float:
        """Share of the padded audio that is padding."""
        return _padding(self.micro_batches)

    @property
    def imbalance(self) -> float:
        """The most costly micro-batch over the mean of all: what one device each would wait for."""
        costs = [one.cost for one in self.micro_batches]
        return max(costs) * len(costs) / sum(costs) if sum(costs) else 1.0


def _padding(batches: list[MicroBatch]) -> float:
    padded = sum(len(one.seconds) * one.longest for one in batches)
    return 1.0 - sum(float(one.seconds.sum()) for one in batches) / padded if padded else 0.0


def planned_step(material: Material, settings: PlanSettings, step: int) -> PlannedStep:
    """Look up plan step ``step`` (0 or more) of a training on ``material``."""
    plan, epoch, inside = material.plans.at(step)
    tokens = token_counts(material.collection, material.tokenizer)[:, 0]
    found = []
    for place in range(plan.micro_batches):
        members = plan.micro_batch(inside, place)
        seconds = material.collection.lengths[members] / SAMPLE_RATE
        longest = float(seconds.max(initial=0.0))
        attention = longest / settings.attention_seconds if settings.attention_seconds else 0.0
        cost = len(seconds) * longest * (1.0 + attention)  # as the plan weighs it: cost grows with length squared
        found.append(MicroBatch(seconds, int(tokens[members].sum()), cost))
    return PlannedStep(step, epoch, inside, material.plans.steps_per_epoch, found)
