"""Small convolutions over time and frequency that shorten time: fewer frames, and pitch that matters less.

A voice that lies a little higher or lower than those of the training looks the same to them, only shifted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from allears.layers.masking import real_frames

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


def subsampled(frames: NDArray[np.int64], factor: int) -> NDArray[np.int64]:
    """Frames that remain of ``frames`` [n]: a started one counts."""
    return (frames + factor - 1) // factor


class Subsampling(nn.Module):
    """Convolutions that each halve time and frequency, all but the first depthwise-separable, and a linear layer.

    Args:
        bins: bands of the features.
        width: size of a frame that comes out.
        factor: features per frame that comes out; a power of two from 4 on.
        channels: of the first convolution; the later ones have twice as many.
    """

    def __init__(self, bins: int, width: int, factor: int, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.later = nn.ModuleList()
        for _ in range(factor.bit_length() - 2):
            depthwise = nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels, bias=False)
            last = channels if self.later else 2 * channels
            self.later.append(nn.Sequential(depthwise, nn.Conv2d(channels, last, 1)))
            channels = last
        self.output = nn.Linear(channels * ((bins + factor - 1) // factor), width, bias=False)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shorten ``features`` [batch, frames, bins] of ``lengths`` [batch].

        Returns:
            [batch, frames / factor, width]; lengths [batch]; 1 on real frames, else 0 [batch, frames / factor, 1].
        """
        x = (features * real_frames(lengths, features.shape[1])[:, :, None]).unsqueeze(1)
        for convolution in (self.first, *self.later):
            lengths = torch.div(lengths + 1, 2, rounding_mode="floor")
            real = real_frames(lengths, (x.shape[2] + 1) // 2)[:, :, None].to(features.dtype)
            # What stands in padding must not reach a real frame. In place: half the time of all this is memory traffic.
            x = convolution(x).mul_(real[:, None]).relu_()  # [batch, channels, frames, bins]
        return self.output(x.permute(0, 2, 3, 1).flatten(2)), lengths, real
