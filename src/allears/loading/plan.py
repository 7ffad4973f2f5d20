"""The batch plan: which utterances stand in which micro-batch of which step, decided without rank or world size.

A *step* holds ``step_seconds`` of audio, cut into ``micro_batches`` (a power of two), each run by one device at a time.

    sort      by length, blurred a little so that neighbours change from epoch to epoch
    fill      cut the sorted order at equal cost: as many micro-batches as the epoch has places, all equally full
    deal      cut the micro-batches into as many strata as a step has places, shuffle each, give each step one of each
    fold      inside a step, pair the most with the least costly, then the pairs, so that aligned subtrees cost the same
    share     each rank takes one aligned subtree of the places

Everything up to *fold* is one pass of array work in integers, so that every machine gets the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from allears import seeding
from allears.errors import PlanError
from allears.settings import Settings
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_BLUR, _DEAL, _DROP = (seeding.key(f"plan.{purpose}") for purpose in ("blur", "deal", "drop"))


class PlanSettings(Settings):
    """What a step is.

    Attributes:
        step_seconds: audio in one optimiser step, over all devices.
        micro_batches: parts of a step that devices run one at a time; more than one device needs as many or more.
        max_utterances: upper bound of utterances in a micro-batch.
        attention_seconds: length at which attention costs as much as everything else; none for models without it.
        min_seconds: utterances that are shorter in the dataset are left out.
        max_seconds: those that are longer there are left out.
        blur: relative width by which lengths are blurred before sorting; the price is as much padding.
        drop_last: leave out what does not fill a last whole step, another part each epoch.
    """

    step_seconds: PositiveFloat = 120.0
    micro_batches: PositiveInt = 8
    max_utterances: PositiveInt | None = None
    attention_seconds: PositiveFloat | None = None
    min_seconds: float = Field(default=0.3, ge=0)
    max_seconds: PositiveFloat = 30.0
    blur: float = Field(default=0.01, ge=0, le=1)
    drop_last: bool = False

    @field_validator("micro_batches")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError("must be a power of two, such as 1, 2, 4, 8 or 16")
        return value

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if self.min_seconds >= self.max_seconds:
            raise ValueError(f"min_seconds ({self.min_seconds}) must be below max_seconds ({self.max_seconds})")
        return self

    @property
    def micro_seconds(self) -> float:
        """Audio that one device runs at a time, in seconds."""
        return self.step_seconds / self.micro_batches


@dataclass(frozen=True)
class Limits:
    """Which utterances can be planned at all: ``usable`` [n] booleans, and how many each rule leaves out."""

    usable: NDArray[np.bool_]
    left_out: dict[str, int]


def limits(lengths: Integers, settings: PlanSettings, longest: Integers | None = None) -> Limits:
    """Apply the length limits to ``lengths`` [n] in samples.

    Args:
        lengths: in the dataset; ``min_seconds`` and ``max_seconds`` are about them.
        settings: the limits.
        longest: what each may become by augmentation [n], which a micro-batch must hold: so an utterance is left out
            in every epoch or in none, whatever is drawn.

    Raises:
        PlanError: nothing remains.
    """
    seconds = lengths / SAMPLE_RATE
    short = seconds < settings.min_seconds
    long = seconds > settings.max_seconds
    longest = lengths if longest is None else longest
    micro = settings.micro_seconds
    unheld = ~short & ~long & (longest / SAMPLE_RATE > micro)
    slowed = " at the slowest augment.speed" if (longest > lengths).any() else ""
    left_out = {
        f"shorter than plan.min_seconds ({settings.min_seconds:g})": int(short.sum()),
        f"longer than plan.max_seconds ({settings.max_seconds:g})": int(long.sum()),
        f"longer{slowed} than a micro-batch ({micro:g} s: plan.step_seconds over plan.micro_batches)": int(
            unheld.sum()
        ),
    }
    usable = ~(short | long | unheld)
    left_out = {rule: count for rule, count in left_out.items() if count}
    if not usable.any():
        found = ", ".join(f"{count} are {rule}" for rule, count in left_out.items()) or "there are none"
        raise PlanError(
            f"no utterance can be trained on: of {len(lengths)}, {found}; "
            "raise plan.step_seconds, lower plan.micro_batches or change plan.min_seconds and plan.max_seconds."
        )
    return Limits(usable, left_out)


@dataclass(frozen=True)
class EpochPlan:
    """One pass over the data.

    Attributes:
        utterances: indices [planned], micro-batch after micro-batch; each usable utterance stands here once.
        offsets: where each micro-batch begins [steps × micro_batches + 1].
        micro_batches: how many make a step.
    """

    utterances: Integers
    offsets: Integers
    micro_batches: int

    @property
    def steps(self) -> int:
        """Optimiser steps in the epoch."""
        return (len(self.offsets) - 1) // self.micro_batches

    def micro_batch(self, step: int, place: int) -> Integers:
        """Utterances of the micro-batch at ``place`` of ``step``; may be empty."""
        at = step * self.micro_batches + place
        return self.utterances[self.offsets[at] : self.offsets[at + 1]]

    def step(self, step: int) -> Integers:
        """Utterances of the whole step."""
        first = step * self.micro_batches
        return self.utterances[self.offsets[first] : self.offsets[first + self.micro_batches]]


def _cost(lengths: Integers, settings: PlanSettings) -> Integers:
    """What an utterance of each of ``lengths`` costs, in samples: linear, and quadratic for attention."""
    if settings.attention_seconds is None:
        return lengths
    return lengths + lengths * lengths // int(settings.attention_seconds * SAMPLE_RATE)


def _floored_cost(lengths: Integers, settings: PlanSettings) -> tuple[Integers, float]:
    """Cost of each utterance, at least its share of a micro-batch's budget, and that budget."""
    cost = _cost(lengths, settings)
    mean = int(cost.sum()) / max(int(lengths.sum()), 1)
    budget = settings.micro_seconds * SAMPLE_RATE * mean
    if settings.max_utterances is not None:
        cost = np.maximum(cost, int(np.ceil(budget / settings.max_utterances)))
    return cost, budget


def steps_per_epoch(lengths: Integers, settings: PlanSettings) -> int:
    """How many steps a pass over usable utterances of ``lengths`` [n] (samples) takes; the same every epoch."""
    cost, budget = _floored_cost(lengths, settings)
    steps = int(cost.sum()) / (budget * settings.micro_batches)
    return max(1, int(np.floor(steps) if settings.drop_last else np.ceil(steps - 1e-9)))


def plan_epoch(lengths: Integers, settings: PlanSettings, seed: int, epoch: int, steps: int | None = None) -> EpochPlan:
    """Plan one pass over usable utterances (one or more).

    Args:
        lengths: samples in this epoch [n].
        settings: what a step is.
        seed: of the run.
        epoch: from 0.
        steps: how many there are; None: `steps_per_epoch` of these lengths.
    """
    steps = steps or steps_per_epoch(lengths, settings)
    names = _kept(lengths, settings, steps, seed, epoch) if settings.drop_last else np.arange(len(lengths))
    names = names[_blurred_order(lengths[names], names, settings, seed, epoch)]
    offsets = _fill(lengths[names], settings, steps)
    dealt = _deal(np.diff(offsets), steps, seed, epoch)
    folded = np.take_along_axis(dealt, fold(_padded_cost(lengths[names], offsets, settings)[dealt]), axis=1)
    return _arranged(names, offsets, folded)


def _kept(lengths: Integers, settings: PlanSettings, steps: int, seed: int, epoch: int) -> Integers:
    """As many utterances, in a random order of this epoch, as fill ``steps`` whole steps."""
    order = np.argsort(seeding.hashed(np.arange(len(lengths), dtype=np.uint64), seed, epoch, _DROP), kind="stable")
    cost, budget = _floored_cost(lengths, settings)
    full = np.cumsum(cost[order]) <= budget * settings.micro_batches * steps
    full[0] = True
    return np.sort(order[full])


def _blurred_order(lengths: Integers, names: Integers, settings: PlanSettings, seed: int, epoch: int) -> Integers:
    """Order by length times 1 ± blur, so that neighbours, and with them micro-batches, change every epoch."""
    draws = seeding.uniform(names.astype(np.uint64), seed, epoch, _BLUR)
    return np.argsort(lengths * (1.0 + settings.blur * (2.0 * draws - 1.0)), kind="stable")


def _fill(lengths: Integers, settings: PlanSettings, steps: int) -> Integers:
    """Cut utterances in order into steps × micro_batches parts of equal cost; where each begins [parts + 1]."""
    cost, _ = _floored_cost(lengths, settings)
    ends = np.cumsum(cost)
    parts = steps * settings.micro_batches
    boundaries = np.arange(1, parts) * (float(ends[-1]) / parts)
    inner = np.searchsorted(ends - cost / 2, boundaries, side="left")
    return np.concatenate(([0], inner, [len(lengths)])).astype(np.int64)


def _deal(counts: Integers, steps: int, seed: int, epoch: int) -> Integers:
    """Which micro-batch (in order of length) stands where [steps, micro_batches]: one of each stratum a step.

    Each stratum is shuffled, with a lean: steps that have got many utterances so far tend to get longer, that is
    fewer, ones. On log-normal lengths this cuts the variation of utterances per step by about a half.
    """
    strata = counts.reshape(-1, steps)  # [micro_batches, steps], shortest utterances first
    draws = seeding.uniform(np.arange(strata.size, dtype=np.uint64), seed, epoch, _DEAL).reshape(strata.shape)
    dealt = np.empty((steps, len(strata)), dtype=np.int64)
    total = np.zeros(steps, dtype=np.int64)
    for stratum, (count, draw) in enumerate(zip(strata, draws, strict=True)):
        rank = np.empty(steps)
        rank[np.argsort(total, kind="stable")] = np.arange(steps) / steps
        order = np.argsort(draw + (rank if stratum else 0.0), kind="stable")
        dealt[order, stratum] = np.arange(steps) + stratum * steps
        total[order] += count
    return dealt


def _padded_cost(lengths: Integers, offsets: Integers, settings: PlanSettings) -> Integers:
    """Cost of each micro-batch [parts] with all its utterances padded to the longest."""
    counts = np.diff(offsets)
    longest = np.zeros(len(counts), dtype=np.int64)
    filled = counts > 0
    longest[filled] = np.maximum.reduceat(lengths, offsets[:-1][filled])
    return counts * _cost(longest, settings)


def fold(costs: Integers) -> Integers:
    """Order the places of each step [steps, places] so that every aligned subtree of them costs nearly the same."""
    places = costs.shape[1]
    if places == 1:
        return np.zeros(costs.shape, dtype=np.int64)
    ranked = np.argsort(costs, axis=1, kind="stable")  # [steps, places]
    least, most = ranked[:, : places // 2], ranked[:, : places // 2 - 1 : -1]  # [steps, places / 2] each
    pairs = np.stack((least, most), axis=2)  # [steps, places / 2, 2]
    summed = np.take_along_axis(costs, least, axis=1) + np.take_along_axis(costs, most, axis=1)
    arranged = np.take_along_axis(pairs, fold(summed)[:, :, None], axis=1)
    return arranged.reshape(costs.shape)


def _arranged(utterances: Integers, offsets: Integers, dealt: Integers) -> EpochPlan:
    """Copy the micro-batches into the order of ``dealt`` [steps, micro_batches]."""
    order = dealt.reshape(-1)
    counts = np.diff(offsets)[order]
    ends = np.cumsum(counts)
    source = np.repeat(offsets[order] - (ends - counts), counts) + np.arange(len(utterances))
    return EpochPlan(utterances[source], np.concatenate(([0], ends)).astype(np.int64), dealt.shape[1])


def subtrees(micro_batches: int, size: int) -> list[range]:
    """The places of each of ``size`` ranks: split the largest aligned subtree until there are enough.

    Raises:
        PlanError: there are more ranks than micro-batches.
    """
    if size > micro_batches:
        raise PlanError(
            f"{size} processes cannot share {micro_batches} micro-batches: each needs one; "
            f"start at most {micro_batches} processes, or raise plan.micro_batches to {1 << (size - 1).bit_length()} "
            "(and plan.step_seconds with it, where a micro-batch would become too short for long utterances)."
        )
    leaves = [range(micro_batches)]
    while len(leaves) < size:
        at = max(range(len(leaves)), key=lambda n: (len(leaves[n]), -n))
        middle = leaves[at].start + len(leaves[at]) // 2
        leaves[at : at + 1] = [range(leaves[at].start, middle), range(middle, leaves[at].stop)]
    return leaves


def idle_share(micro_batches: int, size: int) -> float:
    """Share of the devices' time that is lost because ``size`` does not divide ``micro_batches``."""
    longest = max(len(leaf) for leaf in subtrees(micro_batches, size))
    return 1.0 - micro_batches / (longest * size)
