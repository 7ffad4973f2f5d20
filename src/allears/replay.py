"""A micro-batch out of a run's quarantine, run once more: the same batch, the weights it met, the same dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from allears.errors import CheckpointError
from allears.files import read_json
from allears.run.recognise import load
from allears.training import checkpoint
from allears.training.engine import objective
from allears.training.precision import autocast
from allears.training.quarantine import BATCH, first_not_finite, quarantine_folder
from allears.types import Batch, Loss
from allears.world import World

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

_ALONE = World(0, 1, 0, 1, torch.device("cpu"))


@dataclass(frozen=True)
class Replay:
    """What came of it.

    Attributes:
        name: of the kept micro-batch.
        guilty: its ``guilty.json``.
        weights: which weights it was run with.
        first: the first tensor that is not finite; None when all are.
        loss: the loss.
    """

    name: str
    guilty: dict[str, Any]
    weights: str
    first: str | None
    loss: float


def kept(run: Path) -> list[Path]:
    """The micro-batches that ``run`` has in quarantine, in the order of their steps."""
    return sorted(path.parent for path in quarantine_folder(run).glob("step-*/guilty.json"))


def replay(run: Path, name: str) -> Replay:
    """Run a kept micro-batch again, on this machine's CPU.

    Raises:
        CheckpointError: there is no such micro-batch; the message names those that are there.
    """
    place = quarantine_folder(run) / name
    if place not in kept(run):
        there = ", ".join(path.name for path in kept(run)) or "none"
        raise CheckpointError(f"{run} keeps no micro-batch {name!r} in quarantine; it keeps {there}.")
    guilty = read_json(place / "guilty.json")
    model, _, newest = load(run, _ALONE)
    weights = f"those of {newest.name}"
    if (place / "model.safetensors").exists():
        checkpoint.load_model(place, model)
        weights = "those it met"
    tensors = checkpoint.read_tensors(place / "batch.safetensors")
    batch = Batch(guilty["batch"], *(tensors[name] for name in BATCH))
    precision = checkpoint.load_position(newest).precision or "float32"
    model.train()

    def backward() -> Loss:
        torch.manual_seed(guilty["seed"])
        with autocast(precision, _ALONE.device):
            loss: Loss = model(batch)
            total = objective(loss, 1)
        total.backward()  # type: ignore[no-untyped-call]
        return loss

    first, loss = first_not_finite(model, backward)
    return Replay(name, guilty, weights, first, loss)
