"""What one step of a plan holds: the utterances of each micro-batch, their padding, their cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
        return float(_figures([self])["padding"])

    def figures(self) -> dict[str, Any]:
        """Its main figures, for JSON."""
        return _figures([self])


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
        return float(_figures(self.micro_batches)["padding"])

    @property
    def imbalance(self) -> float:
        """The most costly micro-batch over the mean of all: what one device each would wait for."""
        costs = [one.cost for one in self.micro_batches]
        return max(costs) * len(costs) / sum(costs) if sum(costs) else 1.0

    def figures(self) -> dict[str, Any]:
        """Its main figures, and those of each micro-batch, for JSON."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "steps_per_epoch": self.steps_per_epoch,
            **_figures(self.micro_batches),
            "imbalance": self.imbalance,
            "micro_batches": [one.figures() for one in self.micro_batches],
        }


def _figures(batches: list[MicroBatch]) -> dict[str, Any]:
    audio = sum(float(one.seconds.sum()) for one in batches)
    padded = sum(len(one.seconds) * one.longest for one in batches)
    return {
        "utterances": sum(len(one.seconds) for one in batches),
        "audio_seconds": audio,
        "longest_seconds": max(one.longest for one in batches),
        "tokens": sum(one.tokens for one in batches),
        "padding": 1.0 - audio / padded if padded else 0.0,
        "cost": sum(one.cost for one in batches),
    }


def planned_step(material: Material, settings: PlanSettings, step: int) -> PlannedStep:
    """Look up plan step ``step`` (0 or more) of a training on ``material``."""
    plan, epoch, inside = material.plans.at(step)
    found = []
    for place in range(plan.micro_batches):
        members = plan.micro_batch(inside, place)
        seconds = material.plans.lengths(members, epoch) / SAMPLE_RATE
        longest = float(seconds.max(initial=0.0))
        attention = longest / settings.attention_seconds if settings.attention_seconds else 0.0
        cost = len(seconds) * longest * (1.0 + attention)  # as the plan weighs it: cost grows with length squared
        found.append(MicroBatch(seconds, material.plans.tokens(members), cost))
    return PlannedStep(step, epoch, inside, material.plans.steps_per_epoch, found)
