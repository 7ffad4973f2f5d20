"""Holds what a run says it did against what its plan says it had to do."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allears.errors import CheckpointError
from allears.run.material import material_of
from allears.run.settings import settings_of
from allears.training import checkpoint
from allears.training.ledger import ledger_folder
from allears.world import World

if TYPE_CHECKING:
    from pathlib import Path

_ALONE = World(0, 1, 0, 1, torch.device("cpu"))


@dataclass(frozen=True)
class Audit:
    """What the ledgers of a run show.

    Attributes:
        steps: how many whole steps they hold.
        epochs: how many whole passes over the data these are.
        used: utterances that were computed, counted each time.
        rejected: planned utterances that could not be used, likewise.
        problems: what is not as it should be, in sentences; none means complete and disjoint.
    """

    steps: int
    epochs: int
    used: int
    rejected: int
    problems: list[str]


def audit(run: Path) -> Audit:
    """Hold the ledgers of ``run`` against its plan: each planned utterance once in its step, in one micro-batch.

    Raises:
        DatasetError: the training data is gone.
        CheckpointError: there is no such run, it has no ledger, or its data has changed.
    """
    folder = ledger_folder(checkpoint.existing(run))
    if not folder.is_dir():
        raise CheckpointError(f"{run} has no ledger; name the folder of a run that has trained.")
    settings, _ = settings_of(str(run))
    material = material_of(settings, settings.train, run, True, _ALONE)
    saved = _saved(run, material.collection.digest)
    lines, problems = _lines(folder)
    places = [(line["step"], int(place), line) for line in lines for place in line["used"]]
    held = Counter((step, place) for step, place, _ in places)
    problems += [f"step {s}: micro-batch {p} stands in {n} ledgers." for (s, p), n in sorted(held.items()) if n > 1]
    size = settings.plan.micro_batches
    last = max((step for step, _ in held), default=-1)
    whole = last + 1 if all((last, place) in held for place in range(size)) else last  # the last may be half written
    problems += [
        f"step {step}: micro-batch {place} stands in no ledger."
        for step in range(max(whole, 0))
        for place in range(size)
        if (step, place) not in held
    ]
    if whole < saved:
        problems.append(f"steps {max(whole, 0)} to {saved - 1} stand in no ledger, but the newest checkpoint has them.")
    per_epoch = material.plans.steps_per_epoch
    counts = np.zeros((max(whole, 0) // per_epoch, len(material.collection)), dtype=np.int64)
    used = rejected = 0
    for step, place, line in places:
        if step >= whole:
            continue
        plan, epoch, inside = material.plans.at(step)
        numbers, out = line["used"][str(place)], line.get("rejected", {}).get(str(place), [])
        planned = plan.micro_batch(inside, place).tolist()
        missing = [material.collection.id(number) for number in planned if number not in set(numbers)]
        if sorted(missing) != sorted(out) or len(numbers) + len(out) != len(planned):
            problems.append(f"step {step}: micro-batch {place} holds other utterances than the plan.")
        used, rejected = used + len(numbers), rejected + len(out)
        if epoch < len(counts):
            met = [*numbers, *(number for number in planned if material.collection.id(number) in out)]
            np.add.at(counts[epoch], met, 1)
    for epoch, row in enumerate(counts):
        if (row != 1).any():
            problems.append(f"epoch {epoch}: {int((row != 1).sum()):,} utterances were not met exactly once.")
    return Audit(max(whole, 0), len(counts), used, rejected, problems)


def _saved(run: Path, digest: str) -> int:
    """How many steps the newest checkpoint has, which must be of the data with ``digest``."""
    if not checkpoint.checkpoints(run):
        return 0
    position = checkpoint.load_position(checkpoint.newest(run))
    if position.digest != digest:
        raise CheckpointError(f"{run} was trained on other utterances than its dataset has now; put them back.")
    return position.step


def _lines(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of all ledgers, and what is wrong with those that cannot be read; the last may be half written."""
    lines, problems = [], []
    for path in sorted(folder.glob("*.jsonl")):
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, text in enumerate(texts, 1):
            try:
                line = json.loads(text)
                lines.append({"step": int(line["step"]), "used": dict(line["used"]), **line})
            except (ValueError, KeyError, TypeError, OverflowError):
                if number < len(texts):
                    problems.append(f"{path.name}: line {number} is not a line of a ledger.")
    return lines, problems
