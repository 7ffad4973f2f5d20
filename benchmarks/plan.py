"""Planning an epoch of a million log-normal lengths: allears beside Lhotse's DynamicBucketingSampler.

Run: make bench   (or: python benchmarks/plan.py --utterances 1000000)
Both get the same lengths, batches of at most as much padded audio, and devices that each run one batch of a step.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from allears.loading.collection import Column
from allears.loading.epochs import EpochPlans
from allears.loading.plan import PlanSettings, plan_epoch, subtrees
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from allears.loading.collection import Collection

    Integers = NDArray[np.signedinteger[Any]]

SEED = 1
WORLDS = (1, 64, 512, 4096)


@dataclass(frozen=True)
class Figures:
    """What a plan is judged by; see docs/plan.md.

    Attributes:
        seconds: to plan (or iterate over) one epoch.
        padding: share of the padded audio that is padding.
        imbalance: the slowest device's cost over the mean, averaged over steps, one micro-batch a device.
        imbalance_half: the same with two micro-batches a device.
        spread: standard deviation of utterances per step over their mean.
        met_again: share of pairs of one micro-batch that meet again in the next epoch.
        steps: in the epoch.
        smallest: utterances in the smallest micro-batch.
    """

    seconds: float
    padding: float
    imbalance: float
    imbalance_half: float
    spread: float
    met_again: float
    steps: int
    smallest: int


@dataclass(frozen=True)
class StepCost:
    """What a step costs one rank of a world of which only the size is pretended.

    Attributes:
        world: ranks; a step has as many micro-batches, at least 8.
        steps: in the epoch.
        lookup_ms: a rank's time for a step, the median: its micro-batches, and what the plan says of the whole step.
        planned_ms: time of planning the epoch, in the background, over its steps.
        lhotse_ms: Lhotse's time for as many batches, of which the rank keeps its own; none where it was left out.
    """

    world: int
    steps: int
    lookup_ms: float
    planned_ms: float
    lhotse_ms: float | None


class Lengths:
    """Stands for a collection of which only the lengths are known."""

    digest = "lengths"

    def __init__(self, lengths: Integers) -> None:
        columns = {"samples": lengths, "keys": np.arange(len(lengths), dtype=np.uint64)}
        self._columns = {name: Column([(values, range(len(values)))]) for name, values in columns.items()}
        self._count = len(lengths)

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> Column:
        """Lengths, or keys."""
        return self._columns[name]

    def forget(self) -> None:
        """Nothing is mapped."""


def step_cost(lengths: Integers, world: int, lhotse_utterances: int) -> StepCost:
    """Walk through the steps of two epochs as the last rank of ``world`` does."""
    settings = PlanSettings(step_seconds=max(world, 8) * 300.0, micro_batches=max(world, 8))
    counts = Column([(np.ones((len(lengths), 1), dtype=np.int32), range(len(lengths)))])
    plans = EpochPlans(cast("Collection", Lengths(lengths)), counts, settings, SEED)
    places = subtrees(settings.micro_batches, world)[-1]
    began = time.perf_counter()
    plans.at(0)
    planned = time.perf_counter() - began
    seconds = []
    for step in range(plans.steps_per_epoch):
        began = time.perf_counter()
        plan, _, inside = plans.at(step)
        plans.planned(step)
        for place in places:
            plan.micro_batch(inside, place).tolist()
        seconds.append(time.perf_counter() - began)
    beside = lhotse_step_ms(lengths[:lhotse_utterances], world, settings) if lhotse_utterances else None
    lookup = 1000 * statistics.median(seconds)
    return StepCost(world, plans.steps_per_epoch, lookup, 1000 * planned / plans.steps_per_epoch, beside)


def lhotse_step_ms(lengths: Integers, world: int, settings: PlanSettings) -> float:
    """Milliseconds of one rank for the batches of a step, from a whole pass of Lhotse's sampler."""
    from lhotse.dataset import DynamicBucketingSampler

    sampler = DynamicBucketingSampler(
        lhotse_cuts(lengths), max_duration=300.0, shuffle=True, seed=SEED, num_buckets=30, world_size=world, rank=0
    )
    began = time.perf_counter()
    own = sum(1 for _ in sampler)
    return 1000 * (time.perf_counter() - began) / max(own, 1) * settings.micro_batches / world


def log_normal(utterances: int) -> Integers:
    """Lengths in samples: median 9 s, sigma 0.6, from 0.5 to 30 s; much like read and spontaneous speech mixed."""
    seconds = np.exp(np.random.default_rng(0).normal(np.log(9.0), 0.6, utterances))
    return (np.clip(seconds, 0.5, 30.0) * SAMPLE_RATE).astype(np.int64)


def allears_figures(lengths: Integers, micro_batches: int, micro_seconds: float) -> Figures:
    """Measure `plan_epoch`, the median of three."""
    settings = PlanSettings(step_seconds=micro_batches * micro_seconds, micro_batches=micro_batches)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        plan = plan_epoch(lengths, settings, SEED, 0)
        seconds.append(time.perf_counter() - began)
    following = plan_epoch(lengths, settings, SEED, 1)
    batches = np.split(plan.utterances, plan.offsets[1:-1])
    after = np.split(following.utterances, following.offsets[1:-1])
    return figures(statistics.median(seconds), lengths, batches, after, micro_batches)


def lhotse_cuts(lengths: Integers) -> Any:
    """Cuts of these lengths, without audio."""
    from lhotse import CutSet, MonoCut

    return CutSet.from_cuts(
        MonoCut(id=str(n), start=0.0, duration=samples / SAMPLE_RATE, channel=0, recording=None)
        for n, samples in enumerate(lengths.tolist())
    )


def lhotse_figures(lengths: Integers, micro_batches: int, micro_seconds: float) -> Figures:
    """Measure one pass over Lhotse's sampler, its batches dealt to devices in the order in which they come."""
    from lhotse.dataset import DynamicBucketingSampler

    cuts = lhotse_cuts(lengths)
    epochs = []
    seconds = 0.0
    for epoch in range(2):
        sampler = DynamicBucketingSampler(cuts, max_duration=micro_seconds, shuffle=True, seed=SEED, num_buckets=30)
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        epochs.append([np.array([int(cut.id) for cut in batch]) for batch in sampler])
        seconds = seconds or time.perf_counter() - began
    return figures(seconds, lengths, epochs[0], epochs[1], micro_batches)


def figures(
    seconds: float,
    lengths: Integers,
    batches: list[Integers],
    after: list[Integers],
    micro_batches: int,
) -> Figures:
    """Judge ``batches`` (utterances of each), with those of the next epoch in ``after``."""
    counts = np.array([len(batch) for batch in batches])
    costs = np.array([len(batch) * lengths[batch].max(initial=0) for batch in batches])
    whole = len(batches) // micro_batches * micro_batches
    steps = costs[:whole].reshape(-1, micro_batches)  # [steps, micro_batches]
    halves = steps.reshape(len(steps), -1, 2).sum(axis=2)  # [steps, micro_batches / 2]
    utterances = counts[:whole].reshape(-1, micro_batches).sum(axis=1)
    return Figures(
        seconds,
        1.0 - float(lengths[np.concatenate(batches)].sum()) / float(costs.sum()),
        float((steps.max(axis=1) / steps.mean(axis=1)).mean()),
        float((halves.max(axis=1) / halves.mean(axis=1)).mean()),
        float(utterances.std() / utterances.mean()),
        met_again(batches, after, len(lengths)),
        len(steps),
        int(counts.min()),
    )


def met_again(batches: list[Integers], after: list[Integers], utterances: int) -> float:
    """Share of neighbouring pairs inside ``batches`` that share a batch in ``after``."""
    home = np.full(utterances, -1)
    for number, batch in enumerate(after):
        home[batch] = number
    pairs = [np.stack((batch[:-1], batch[1:])) for batch in batches if len(batch) > 1]
    first, second = np.concatenate(pairs, axis=1)
    return float((home[first] == home[second]).mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utterances", type=int, default=1_000_000)
    parser.add_argument("--without-lhotse", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON in the last line")
    chosen = parser.parse_args()
    lengths = log_normal(chosen.utterances)
    rows = [("allears", m, s, allears_figures(lengths, m, s)) for m, s in ((8, 300), (8, 640), (16, 640), (512, 640))]
    if not chosen.without_lhotse:
        version = importlib.metadata.version("lhotse")
        rows.append((f"lhotse {version}", 8, 300, lhotse_figures(lengths, 8, 300)))
    print(f"{chosen.utterances:,} log-normal lengths, {int(lengths.sum()) / SAMPLE_RATE / 3600:,.0f} h")
    print(
        "plan          micro-batches  seconds  epoch s  padding  imbalance  at half  utt/step σ/μ  met again  smallest"
    )
    for name, micro_batches, micro_seconds, found in rows:
        print(
            f"{name:<15}{micro_batches:>12}{micro_seconds:>9}{found.seconds:>9.2f}{found.padding:>9.2%}"
            f"{found.imbalance:>11.3f}{found.imbalance_half:>9.3f}{found.spread:>14.3f}{found.met_again:>11.2%}"
            f"{found.smallest:>10}"
        )
    # A part of the lengths is enough for Lhotse, whose time for a step hardly depends on how many there are.
    some = 0 if chosen.without_lhotse else chosen.utterances // 10
    costs = [step_cost(lengths, world, max(some, 40 * world) if some else 0) for world in WORLDS]
    print("world    steps  rank's ms a step  planning, ms a step  lhotse's ms")
    for cost in costs:
        beside = "" if cost.lhotse_ms is None else f"{cost.lhotse_ms:>13.1f}"
        print(f"{cost.world:>5}{cost.steps:>9}{cost.lookup_ms:>18.3f}{cost.planned_ms:>21.2f}{beside}")
    if chosen.json:
        plans = [{"plan": name, "micro_batches": m, "micro_seconds": s, **asdict(f)} for name, m, s, f in rows]
        print(json.dumps({"plans": plans, "steps": [asdict(cost) for cost in costs]}))


if __name__ == "__main__":
    main()
