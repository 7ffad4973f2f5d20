"""Digests of everything that a step changes, so that two runs can be compared bit by bit without keeping either."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from allears.training.checkpoint import optimizer_tensors

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def digests(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Name → SHA-256 (its first 16 hexadecimal digits) of each weight, buffer and tensor of the optimiser's state."""
    state = {**model.state_dict(), **{f"optimizer.{n}": t for n, t in optimizer_tensors(model, optimizer).items()}}
    return {name: _digest(value) for name, value in state.items()}


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]
