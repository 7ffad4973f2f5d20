"""Dropout (Srivastava et al., JMLR 2014) that costs little on a CPU.

There one random 64-bit number is drawn for four elements, where torch draws one for each: with it, dropout took a
quarter of the time of training a small Conformer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


class Dropout(nn.Module):
    """In training each element is zero with ``probability`` (on a CPU to the nearest 1 / 65,536), the others grow."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of ``x``; from the device's default generator."""
        if x.device.type != "cpu" or not self.training or self.probability == 0:
            return nn.functional.dropout(x, self.probability, self.training)
        drawn = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        factors = drawn[: x.numel()].view(x.shape).to(torch.float32)
        factors.ge_(round(self.probability * 65_536) - 32_768).mul_(1 / (1 - self.probability))
        return x * factors.to(x.dtype)
