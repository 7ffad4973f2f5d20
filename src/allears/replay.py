"""A micro-batch out of a run's quarantine, run once more: the same batch, the weights it met, the same dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from allears.errors import CheckpointError
from allears.reporting import say
from allears.run.material import tokenizer_of
from allears.run.recognise import load
from allears.run.settings import settings_of
from allears.text.tokenizer import Tokenizer
from allears.training import checkpoint
from allears.training.engine import objective
from allears.training.precision import autocast
from allears.training.quarantine import Kept, first_not_finite, kept, quarantine_folder, read_batch, read_kept
from allears.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from allears.types import Loss

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
    guilty: Kept
    weights: str
    first: str | None
    loss: float


def replay(run: Path, name: str) -> Replay:
    """Run a kept micro-batch again, on this machine's CPU.

    Raises:
        CheckpointError: there is no such micro-batch (the message names those that are there), or it is damaged; its
            weights were not kept, and no checkpoint is there.
        DataError: it is damaged.
    """
    place = quarantine_folder(run) / name
    if place not in kept(run):
        there = ", ".join(path.name for path in kept(run)) or "none"
        raise CheckpointError(f"{run} keeps no micro-batch {name!r} in quarantine; it keeps {there}.")
    guilty = read_kept(place)
    batch = read_batch(place, guilty.batch)
    if (place / "model.safetensors").exists():
        settings, _ = settings_of(str(run))
        model = settings.model.build(Tokenizer.load(tokenizer_of(run, say)).size)
        checkpoint.load_model(place, model)
        weights = "the weights it met"
    else:
        model, _, stands = load(run, _ALONE)
        weights = f"those of {stands.name}, for its own were not kept"
    model.train()

    def backward() -> Loss:
        torch.manual_seed(guilty.seed)
        with autocast(guilty.precision, _ALONE.device):
            loss: Loss = model(batch)
            total = objective(loss, 1)
        total.backward()  # type: ignore[no-untyped-call]
        return loss

    first, loss = first_not_finite(model, backward)
    return Replay(name, guilty, weights, first, loss)
