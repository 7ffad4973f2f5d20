"""What a training step costs, and what each reduction costs beside the backend's own.

On a machine that does other things too, two runs one after the other say little. So each group of processes builds its
training once, loads some steps ahead, and takes the same steps again and again, block by block, with one reduction
after the other: A B A B … Each step is compared with the same step of the other reduction's block in its round.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast, get_args

import psutil
import torch

from allears.cluster.launch import Launch, launch
from allears.errors import SettingsError, TrainingError
from allears.files import read_json, write_json
from allears.loading.plan import subtrees
from allears.reporting import Progress, say
from allears.run.train import Training
from allears.training.reduction import Reduction
from allears.types import StepSeconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from allears.run.settings import RunSettings
    from allears.world import World

BASELINE: Reduction = "fast"


@dataclass(frozen=True)
class Cost:
    """Steps of one reduction.

    Attributes:
        reduction: how gradients were added.
        steps: how many were timed.
        step_seconds: median of a step.
        quartiles: of the same, the first and the third.
        seconds: medians of what went where; batches are loaded ahead, so none on data.
        cpu_seconds: median of what all processes together computed.
        ratio: median of the steps' times over those of `BASELINE`; none without it.
        interval: 95 % of that median, whatever the distribution.
    """

    reduction: Reduction
    steps: int
    step_seconds: float
    quartiles: tuple[float, float]
    seconds: dict[str, float]
    cpu_seconds: float
    ratio: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Conditions:
    """Under which steps were timed.

    Attributes:
        processes: that took each step together.
        threads: of each.
        cores: that they may use on their machine.
        others: cores that other programs used meanwhile, on average.
        parameters: of the model.
        audio_seconds: in a step, on average.
    """

    processes: int
    threads: int
    cores: int
    others: float
    parameters: int
    audio_seconds: float


@dataclass(frozen=True)
class Measured:
    """What one number of processes came to."""

    conditions: Conditions
    costs: list[Cost]


def known_reductions(names: Sequence[str]) -> list[Reduction]:
    """``names`` as reductions.

    Raises:
        SettingsError: one is unknown, or given twice.
    """
    known = get_args(Reduction)
    if not set(names) <= set(known) or len(set(names)) < len(names):
        raise SettingsError(
            f"--reduction must be some of {', '.join(known)}, each once, with commas between them, not "
            f"{','.join(names)!r}."
        )
    return cast("list[Reduction]", list(names))


def measure_worlds(command: Sequence[str], worlds: Sequence[int], folder: Path) -> list[Measured]:
    """Start ``command``, whose ranks call `measure`, on each number of processes.

    Raises:
        TrainingError: one failed; its own error has been printed.
    """
    found = []
    for world in worlds:
        say(f"— {world} process{'es' * (world > 1)}")
        place = _place(folder, world)
        shutil.rmtree(place, ignore_errors=True)
        if launch(command, Launch(world)) != 0:
            raise TrainingError(f"the measurement on {world} processes stopped; its error is above.")
        kept = read_json(place / "measured.json")
        found.append(Measured(Conditions(**kept["conditions"]), [Cost(**cost) for cost in kept["costs"]]))
    return found


def measure(
    settings: RunSettings, world: World, reductions: Sequence[Reduction], steps: int, rounds: int, folder: Path
) -> None:
    """Time the first ``steps`` steps of a training, ``rounds`` times with each reduction; on every rank.

    One more round goes before, to warm up. The learning rate is zero: all of the optimiser's work is done, but every
    block finds the same weights. What was measured is written to ``folder``, for `measure_worlds`.

    Raises:
        AllearsError: see `allears.run.train.train`.
    """
    place = _place(folder, world.size)
    seconds: list[list[float]] = []  # of each step: data, compute, communication, other, and on the CPU
    with ExitStack() as stack:
        training = Training(settings, place, world, stack)
        work = list(training.loader(subtrees(settings.plan.micro_batches, world.size)[world.rank], steps))
        progress = stack.enter_context(Progress("measuring", (rounds + 1) * len(reductions) * steps, "steps"))
        for number in range(rounds + 1):
            if number == 1:
                before = _spent(world)
            for reduction in reductions:
                training.reduce_by(reduction)
                world.barrier()
                for item in work:
                    cpu = time.process_time()
                    report, _ = training.stepper.step(item, learning_rate=0.0, data_seconds=0.0)
                    seconds.append([*asdict(report.seconds).values(), time.process_time() - cpu])
                    progress.advance()
        elapsed, busy, ours = (now - then for now, then in zip(_spent(world), before, strict=True))
    of_ranks = torch.tensor(world.gather(seconds)).view(world.size, rounds + 1, len(reductions), steps, -1)
    if world.leads:
        conditions = Conditions(
            processes=world.size,
            threads=torch.get_num_threads(),
            cores=len(os.sched_getaffinity(0)),
            others=round(max(busy - ours, 0.0) / elapsed, 2),
            parameters=sum(parameter.numel() for parameter in training.model.parameters()),
            audio_seconds=round(statistics.mean(item.planned.audio_seconds for item in work), 2),
        )
        measured = Measured(conditions, costs(of_ranks[:, 1:], reductions))
        write_json(place / "measured.json", asdict(measured))


def costs(seconds: torch.Tensor, reductions: Sequence[Reduction]) -> list[Cost]:
    """What steps cost.

    Args:
        seconds: [ranks × rounds × reductions × steps × 5]: the four of `StepSeconds`, and on the CPU.
        reductions: their names.
    """
    split, cpu = seconds[..., :-1].mean(0), seconds[..., -1].sum(0)
    whole = split.sum(-1)
    baseline = whole[:, reductions.index(BASELINE)] if BASELINE in reductions else None
    found = []
    for number, reduction in enumerate(reductions):
        mine = whole[:, number]
        first, median, third = mine.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=mine.dtype)).tolist()
        parts = split[:, number].flatten(0, 1).quantile(0.5, dim=0).tolist()
        ratios = sorted((mine / baseline).flatten().tolist()) if baseline is not None else []
        found.append(
            Cost(
                reduction,
                mine.numel(),
                median,
                (first, third),
                dict(zip(StepSeconds.__slots__, parts, strict=True)),
                float(cpu[:, number].quantile(0.5)),
                statistics.median(ratios) if ratios else None,
                _interval(ratios) if ratios else None,
            )
        )
    return found


def _interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Between which of the ordered values their distribution's median lies with 95 % (by the sign test)."""
    outside = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[outside], ordered[-1 - outside]


def _spent(world: World) -> tuple[float, float, float]:
    """Seconds on the clock, of this machine's busy cores, and of those the share of this machine's ranks."""
    ours = sum(world.gather(time.process_time())[: world.local_size])
    machine = psutil.cpu_times()
    return time.monotonic(), sum(machine) - machine.idle - machine.iowait, ours


def _place(folder: Path, world: int) -> Path:
    return folder / f"train-{world}"
