"""The same steps on several numbers of processes, side by side: is everything that they leave the same bits?"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allears.cluster.launch import Launch, launch
from allears.errors import SettingsError, TrainingError
from allears.loading.plan import subtrees
from allears.processes import PART, THREADS
from allears.reporting import say
from allears.run.settings import settings_of
from allears.stopping import SIGNALS, STOPPED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Steps:
    """What each step of one run left: ``reports``, the lines of its metrics, and ``digests`` of all tensors."""

    reports: list[dict[str, Any]]
    digests: list[dict[str, str]]


@dataclass(frozen=True)
class Difference:
    """Where a run first differs from the first one: after ``step``, on ``world`` processes, in which ``tensors``."""

    step: int
    world: int
    tensors: list[str]


def run_worlds(
    config: str, overrides: Sequence[str], worlds: Sequence[int], steps: int, folder: Path
) -> dict[int, Steps]:
    """Train ``steps`` steps from the start on each number of processes, one thread each; number → what it left.

    Raises:
        SettingsError: there are fewer than two numbers of processes, or no steps.
        PlanError: there are more processes than micro-batches.
        TrainingError: a run failed, its own error has been printed; or it was asked to stop.
    """
    if len(set(worlds)) < 2 or min(worlds) < 1:
        raise SettingsError(f"--world must name two or more numbers of processes, such as 1,2,4, not {worlds}.")
    if steps < 1:
        raise SettingsError(f"--steps must be at least 1, not {steps}.")
    settings, _ = settings_of(config, overrides)
    for world in worlds:
        subtrees(settings.plan.micro_batches, world)  # whether there is work for each is said before the first starts
    found = {}
    os.environ.setdefault(THREADS, "1")
    ours = ("digests=true", f"steps={steps}", f"save_every={steps}", f"validate_every={steps}", "average=false")
    for part, world in enumerate(worlds):
        say(f"— {world} process{'es' * (world > 1)}")
        os.environ[PART] = str(part)
        run = folder / f"world-{world}"
        shutil.rmtree(run, ignore_errors=True)
        given = [*overrides, *(f"training.{one}" for one in ours), "training.tensorboard=false"]
        code = launch(["train", config, *given, "--out", str(run)], Launch(world))
        on = f"on {world} process{'es' * (world > 1)}"
        if code in {STOPPED, *(128 + number for number in SIGNALS)}:
            raise TrainingError(f"the run {on} was asked to stop; nothing is compared.")
        if code != 0:
            raise TrainingError(f"the run {on} stopped; its error is above.")
        reports = [line for line in _lines(run / "metrics.jsonl") if "loss" in line]
        found[world] = Steps(reports, [line["digests"] for line in _lines(run / "digests.jsonl")])
    return found


def first_difference(found: dict[int, Steps]) -> Difference | None:
    """The first step after which a tensor of one run has other bits than in the first run; None where all agree."""
    first, *others = found
    for step, wanted in enumerate(found[first].digests):
        for world in others:
            theirs = found[world].digests[step]
            if theirs != wanted:
                return Difference(step, world, [name for name in wanted if theirs.get(name) != wanted[name]])
    return None


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
