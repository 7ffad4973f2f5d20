"""Batch normalisation whose result does not depend on padding, and whose statistics do not depend on the world size.

Each micro-batch is normalised with its own masked statistics in float32. Its sums are kept aside; the step adds them
over all micro-batches of all ranks and updates the running statistics once, so that they count the whole step.
Source: Ioffe, Szegedy, ICML 2015.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


class MaskedBatchNorm(nn.Module):
    """Normalises channels over the real frames of a micro-batch.

    Args:
        channels: size of the channel axis.
        momentum: weight of a new step in the running statistics.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, channels: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_variance", torch.ones(channels))
        self.momentum = momentum
        self.sums = torch.zeros(1 + 2 * channels)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Normalise ``x`` [batch, frames, channels]; ``real`` [batch, frames, 1] is 1 on frames that count, else 0."""
        if self.training:
            with torch.autocast(x.device.type, enabled=False):
                mean, variance = self._statistics(x.float(), real)
        else:
            mean, variance = self.running_mean, self.running_variance
        scale = self.weight * (variance + 1e-5).rsqrt()
        return torch.addcmul(self.bias - mean * scale, x, scale)

    def _statistics(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        frames = x.flatten(0, 1)  # [batch × frames, channels]
        counted = real.reshape(1, -1)  # [1, batch × frames]: a product with it is a masked sum
        count = counted.sum().clamp_min(1.0)
        mean = (counted @ frames)[0] / count
        square = (counted @ frames.square())[0] / count
        variance = (square - mean.square()).clamp_min(0.0)
        with torch.no_grad():
            kept = torch.cat((counted.sum()[None], mean * count, square * count))
            self.sums = self.sums.to(kept.device) + kept
        return mean, variance

    @torch.no_grad()
    def update(self, sums: Tensor) -> None:
        """Move the running statistics by the ``sums`` [1 + 2 channels] (count, sum, sum of squares) of a whole step."""
        count, total, squares = sums[0], *sums[1:].chunk(2)
        if count < 2:
            return
        mean = total / count
        variance = (squares / count - mean.square()).clamp_min(0.0) * (count / (count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
        self.running_variance.lerp_(variance.to(self.running_variance), self.momentum)


def batch_norms(model: nn.Module) -> Iterator[MaskedBatchNorm]:
    """All of them, in the order of the model."""
    return (module for module in model.modules() if isinstance(module, MaskedBatchNorm))


def taken_sums(model: nn.Module, device: torch.device) -> Tensor:
    """The sums of this step's micro-batches, one vector for the whole model; they start again from zero."""
    norms = list(batch_norms(model))
    if not norms:
        return torch.zeros(0, device=device)
    sums = torch.cat([norm.sums.to(device) for norm in norms])
    for norm in norms:
        norm.sums = torch.zeros_like(norm.sums)
    return sums


def update_running(model: nn.Module, sums: Tensor) -> None:
    """Update all running statistics from the vector of `taken_sums`, added over all ranks."""
    norms = list(batch_norms(model))
    if norms:
        for norm, part in zip(norms, torch.split(sums, [norm.sums.numel() for norm in norms]), strict=True):
            norm.update(part)
