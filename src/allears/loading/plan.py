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
from typing import TYPE_CHECKING, Protocol

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from allears import seeding
from allears.errors import PlanError
from allears.settings import Settings
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

    from numpy.typing import NDArray

    Integers = NDArray[np.signedinteger[Any]]
    Names = NDArray[np.int32]

BLOCK = 1 << 15
"""Utterances that are looked at together in a pass over all: few enough to stay in a processor's cache."""

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
    max_seconds: float = Field(default=30.0, gt=0, le=36_000)
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


def limits(lengths: Integers, settings: PlanSettings, longest: Integers | None = None) -> dict[str, NDArray[np.bool_]]:
    """Which utterances of ``lengths`` [n] in samples cannot be planned: rule → those that it leaves out [n].

    Args:
        lengths: in the dataset; ``min_seconds`` and ``max_seconds`` are about them.
        settings: the limits.
        longest: what each may become by augmentation [n], which a micro-batch must hold: so an utterance is left out
            in every epoch or in none, whatever is drawn.
    """
    seconds, micro = lengths / SAMPLE_RATE, settings.micro_seconds
    held, slowed = (seconds, "") if longest is None else (longest / SAMPLE_RATE, " at the slowest augment.speed")
    return {
        f"shorter than plan.min_seconds ({settings.min_seconds:g})": seconds < settings.min_seconds,
        f"longer than plan.max_seconds ({settings.max_seconds:g})": seconds > settings.max_seconds,
        f"longer{slowed} than a micro-batch ({micro:g} s: plan.step_seconds over plan.micro_batches)": held > micro,
    }


class Numbers(Protocol):
    """A column of whole numbers [n]: an array, or a file that is read as far as it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, stretch: slice, /) -> NDArray[Any]: ...

    def __array__(self) -> NDArray[Any]: ...


@dataclass(frozen=True)
class EpochPlan:
    """One pass over the data.

    Attributes:
        utterances: int32 [planned], micro-batch after micro-batch; each usable utterance stands here once.
        offsets: int32 [steps × micro_batches + 1], where each micro-batch begins.
        micro_batches: how many make a step.
    """

    utterances: Numbers
    offsets: Numbers
    micro_batches: int

    @property
    def steps(self) -> int:
        """Optimiser steps in the epoch."""
        return (len(self.offsets) - 1) // self.micro_batches

    def micro_batch(self, step: int, place: int) -> Names:
        """Utterances of the micro-batch at ``place`` of ``step``; may be empty."""
        at = step * self.micro_batches + place
        begin, end = self.offsets[at : at + 2].tolist()
        return self.utterances[begin:end]

    def step(self, step: int) -> Names:
        """Utterances of the whole step."""
        first = step * self.micro_batches
        begin, *_, end = self.offsets[first : first + self.micro_batches + 1].tolist()
        return self.utterances[begin:end]


def blocks(count: int) -> Iterator[slice]:
    """Stretches that together are ``count`` utterances."""
    return (slice(begin, min(begin + BLOCK, count)) for begin in range(0, count, BLOCK))


def _cost(lengths: Integers, settings: PlanSettings) -> Integers:
    """What an utterance of each of ``lengths`` costs, in samples: linear, and quadratic for attention."""
    if settings.attention_seconds is None:
        return lengths
    wide = lengths.astype(np.int64)
    return wide + wide * wide // int(settings.attention_seconds * SAMPLE_RATE)


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
    names = np.arange(len(lengths), dtype=np.int32)
    if settings.drop_last:
        names = _kept(lengths, settings, steps, seed, epoch)
        lengths = lengths[names]
    order = _blurred_order(lengths, names, settings.blur, seed, epoch)
    names, lengths = names[order], lengths[order]
    del order  # memory counts here: each of these is four bytes an utterance
    offsets = _fill(lengths, settings, steps)
    dealt = _deal(np.diff(offsets), steps, seed, epoch)
    folded = np.take_along_axis(dealt, fold(_padded_cost(lengths, offsets, settings)[dealt]), axis=1)
    return _arranged(names, offsets, folded)


def _kept(lengths: Integers, settings: PlanSettings, steps: int, seed: int, epoch: int) -> Names:
    """As many utterances, in a random order of this epoch, as fill ``steps`` whole steps."""
    order = np.argsort(seeding.hashed(np.arange(len(lengths), dtype=np.uint64), seed, epoch, _DROP), kind="stable")
    cost, budget = _floored_cost(lengths, settings)
    full = np.cumsum(cost[order]) <= budget * settings.micro_batches * steps
    full[0] = True
    return np.sort(order[full].astype(np.int32))


def _blurred(lengths: Integers, names: Names, blur: float, seed: int, epoch: int) -> NDArray[np.float64]:
    """Lengths times 1 ± blur, so that neighbours in their order, and with them micro-batches, change every epoch."""
    draws = seeding.uniform(names.astype(np.uint64), seed, epoch, _BLUR)
    return lengths * (1.0 + blur * (2.0 * draws - 1.0))


def _blurred_order(lengths: Integers, names: Names, blur: float, seed: int, epoch: int) -> Names:
    """Places [n] in stable order of blurred length: `argsort`, in a quarter of its time and half of its memory.

    Positive floats are in order as their bits are. The last bits give way to the place, so that plain numbers are
    sorted; the few whose other bits are equal are then put in order by themselves.
    """
    count = len(lengths)
    bits = np.uint64(count.bit_length())
    place = (np.uint64(1) << bits) - np.uint64(1)  # the last bits
    packed = np.empty(count, dtype=np.uint64)
    for block in blocks(count):
        words = _blurred(lengths[block], names[block], blur, seed, epoch).view(np.uint64)
        packed[block] = (words & ~place) | np.arange(block.start, block.stop, dtype=np.uint64)
    packed.sort()
    order = np.empty(count, dtype=np.int32)
    np.bitwise_and(packed, place, out=order, casting="unsafe")
    packed >>= bits
    equal = packed[1:] == packed[:-1]
    at = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    some = order[at]
    order[at] = some[np.argsort(_blurred(lengths[some], names[some], blur, seed, epoch), kind="stable")]
    return order


def _fill(lengths: Integers, settings: PlanSettings, steps: int) -> Names:
    """Cut utterances in order into steps × micro_batches parts of equal cost; where each begins [parts + 1]."""
    cost, _ = _floored_cost(lengths, settings)
    middles = np.cumsum(cost, dtype=np.float64)  # whole numbers, exact up to 2^53
    parts = steps * settings.micro_batches
    boundaries = np.arange(1, parts) * (float(middles[-1]) / parts)
    for block in blocks(len(cost)):
        middles[block] -= cost[block] / 2
    inner = np.searchsorted(middles, boundaries, side="left")
    return np.concatenate(([0], inner, [len(lengths)])).astype(np.int32)


def _deal(counts: Names, steps: int, seed: int, epoch: int) -> Integers:
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


def reduced(how: np.ufunc, values: Integers, offsets: Names) -> NDArray[np.int64]:
    """Sum or maximum of each part [parts] of ``values`` [n], which ``offsets`` [parts + 1] cut; 0 where it is empty."""
    found = np.zeros(len(offsets) - 1, dtype=np.int64)
    filled = np.diff(offsets) > 0
    found[filled] = how.reduceat(values, offsets[:-1][filled], dtype=np.int64)
    return found


def _padded_cost(lengths: Integers, offsets: Names, settings: PlanSettings) -> Integers:
    """Cost of each micro-batch [parts] with all its utterances padded to the longest."""
    return np.diff(offsets) * _cost(reduced(np.maximum, lengths, offsets), settings)


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


def _arranged(utterances: Names, offsets: Names, dealt: Integers) -> EpochPlan:
    """Copy the micro-batches into the order of ``dealt`` [steps, micro_batches]."""
    order = dealt.reshape(-1)
    counts = np.diff(offsets)[order]
    ends = np.cumsum(counts, dtype=np.int32)
    source = np.repeat(offsets[order] - (ends - counts), counts)
    source += np.arange(len(utterances), dtype=np.int32)
    return EpochPlan(utterances[source], np.append(np.int32(0), ends), dealt.shape[1])


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
