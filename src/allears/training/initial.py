"""Weights to start from: those of another run, as far as they fit; what was and was not taken is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from allears.errors import CheckpointError
from allears.settings import Settings, flat, read
from allears.training import checkpoint
from allears.training.checksums import verify

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn


class InitialSettings(Settings):
    """Where the weights come from.

    Attributes:
        run: folder of a run, or of one of its checkpoints.
        part: ``whole`` takes all that fits (an output layer only if the vocabulary is the same); ``encoder`` takes the
            encoder and what stands in front of it.
    """

    run: str
    part: Literal["whole", "encoder"] = "whole"


@torch.no_grad()
def take(
    model: nn.Module,
    path: Path,
    part: Literal["whole", "encoder"],
    same_vocabulary: bool,
    settings: Mapping[str, Any],
) -> str:
    """Copy into ``model`` what fits of the checkpoint in ``path``; what was done, in words.

    Args:
        model: takes the weights.
        path: folder of a checkpoint.
        part: which of them are wanted.
        same_vocabulary: whether the output layer means the same tokens.
        settings: the model's; statistics of other features than the checkpoint's are not taken.

    Raises:
        CheckpointError: it is damaged, or nothing fits.
    """
    verify(path, optimizer=False)
    found = checkpoint.read_tensors(path / "model.safetensors")
    state = model.state_dict()
    theirs, mine = dict(flat(read(str(path / "settings.yaml")).get("model", {}))), dict(flat(dict(settings)))
    differing = [name for name in mine if name.startswith(("encoder.", "features.")) and theirs.get(name) != mine[name]]
    other = ["output."] if part == "encoder" or not same_vocabulary else []
    other += ["frontend."] if any(name.startswith("features.") for name in differing) else []
    wanted = [name for name in state if not name.startswith(tuple(other))]
    taken = [name for name in wanted if name in found and found[name].shape == state[name].shape]
    unfit = [name for name in wanted if name in found and name not in taken]
    if unfit or not any(name.startswith("encoder.") for name in taken):
        why = f": {_listed(unfit)} have other sizes" if unfit else ""
        raise CheckpointError(
            f"init_from: {path} has an encoder that does not fit this model{why}; "
            "use the model.encoder and model.features settings it was trained with, or leave init_from out."
        )
    for name in taken:
        state[name].copy_(found[name])
    left = [name for name in state if name not in taken]
    new = f"; new: {_listed(left)}" if left else ""
    unused = [name for name in found if name not in taken]
    rest = f"; not used: {_listed(unused)}" if unused else ""
    settings_differ = "".join(f"; model.{name} was {theirs.get(name)!r}, is {mine[name]!r}" for name in differing)
    return f"{len(taken)} of {len(state)} tensors are taken from {path}{new}{rest}{settings_differ}."


def _listed(names: list[str], most: int = 4) -> str:
    """The names of a few tensors, the rest counted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
