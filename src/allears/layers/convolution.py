"""Depthwise convolution over time with channels last.

It sees the same memory as a channels-last picture of height one, which on a CPU is two to three times faster than a
one-dimensional convolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import AfterValidator, PositiveInt
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd, so that a frame sees as far back as ahead")
    return value


Kernel = Annotated[PositiveInt, AfterValidator(_odd)]
"""Frames that a convolution sees."""


class Depthwise(nn.Module):
    """A convolution over time, each channel by itself: [batch, frames, channels] → the same.

    Args:
        channels: size of the last axis.
        kernel: frames seen, odd.
        causal: see only this frame and those before it.
    """

    def __init__(self, channels: int, kernel: int, causal: bool = False) -> None:
        super().__init__()
        self.past = kernel - 1 if causal else 0
        self.convolution = nn.Conv2d(
            channels, channels, (1, kernel), padding=(0, 0 if causal else kernel // 2), groups=channels, bias=False
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``x``; its padding must be zero."""
        if self.past:
            x = nn.functional.pad(x, (0, 0, self.past, 0))
        picture: Tensor = self.convolution(x.transpose(1, 2).unsqueeze(2))  # [batch, channels, 1, frames]
        return picture.squeeze(2).transpose(1, 2)
