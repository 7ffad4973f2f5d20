"""A small convolutional encoder: features [batch, frames, bins] → states [batch, frames / 4, width].

Two strided convolutions over time and frequency, the second depthwise-separable, shorten time by four; residual blocks
of depthwise-separable convolutions over time follow (QuartzNet: Kriman et al., ICASSP 2020), with batch normalisation
that ignores padding. Channels stand last throughout, so that pointwise
convolutions are plain products; depthwise ones see the same memory as a channels-last picture of height one, which on
a CPU is two to three times faster than a one-dimensional convolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field, PositiveInt, field_validator
from torch import nn

from allears.layers.batch_norm import MaskedBatchNorm
from allears.layers.masking import real_frames
from allears.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

SUBSAMPLING = 4
PICTURE = 16
"""Channels of the first convolution over time and frequency."""


class ConvolutionalSettings(Settings):
    """Size of the encoder.

    Attributes:
        kind: ``convolutional``.
        width: channels.
        blocks: residual blocks.
        kernel: frames (after subsampling, 40 ms each) that a block's depthwise convolution sees; odd.
        dropout: in each block.
    """

    kind: Literal["convolutional"] = "convolutional"
    width: PositiveInt = 160
    blocks: PositiveInt = 10
    kernel: PositiveInt = 15
    dropout: float = Field(default=0.1, ge=0, lt=1)

    @field_validator("kernel")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("must be odd, so that a frame sees as far back as ahead")
        return value

    def build(self, bins: int) -> ConvolutionalEncoder:
        """The encoder for features of ``bins`` bands."""
        return ConvolutionalEncoder(self, bins)

    def frames(self, feature_frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames that come out for ``feature_frames`` that go in."""
        return (feature_frames + SUBSAMPLING - 1) // SUBSAMPLING


class _Depthwise(nn.Module):
    """A convolution over time, each channel by itself: [batch, frames, channels] → the same."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            channels, channels, (1, kernel), padding=(0, kernel // 2), groups=channels, bias=False
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        picture: Tensor = self.convolution(x.transpose(1, 2).unsqueeze(2))  # [batch, channels, 1, frames]
        return picture.squeeze(2).transpose(1, 2)


class _Separable(nn.Module):
    """Depthwise, pointwise, batch norm, ReLU; padding comes out as zeros."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = _Depthwise(width, kernel)
        self.pointwise = nn.Linear(width, width, bias=False)
        self.norm = MaskedBatchNorm(width)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.pointwise(self.depthwise(x)), real)
        return normed.relu() * real


class _Picture(nn.Module):
    """Two small convolutions over time and frequency, each halving both.

    A voice that lies a little higher or lower than those of the training looks the same to them, only shifted.
    """

    def __init__(self, bins: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, PICTURE, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(PICTURE, PICTURE, 3, stride=2, padding=1, groups=PICTURE, bias=False)
        self.pointwise = nn.Conv2d(PICTURE, 2 * PICTURE, 1)
        self.output = nn.Linear(2 * PICTURE * ((bins + 3) // 4), width, bias=False)
        self.norm = MaskedBatchNorm(width)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = features.unsqueeze(1).contiguous(memory_format=torch.channels_last)  # [batch, 1, frames, bins]
        lengths, real = _halved(lengths, x.shape[2])
        x = self.first(x).relu() * real[:, None]
        lengths, real = _halved(lengths, x.shape[2])
        x = self.pointwise(self.depthwise(x)).relu()  # [batch, channels, frames / 4, bins / 4]
        x = self.output(x.permute(0, 2, 3, 1).flatten(2))
        normed: Tensor = self.norm(x, real)
        return normed.relu() * real, lengths, real


def _halved(lengths: Tensor, frames: int) -> tuple[Tensor, Tensor]:
    """Lengths after halving ``frames``, and which frames are then real [batch, frames / 2, 1] as numbers."""
    lengths = torch.div(lengths + 1, 2, rounding_mode="floor")
    return lengths, real_frames(lengths, (frames + 1) // 2)[:, :, None].float()


class ConvolutionalEncoder(nn.Module):
    """See the head of this file."""

    def __init__(self, settings: ConvolutionalSettings, bins: int) -> None:
        super().__init__()
        self.width = settings.width
        self.picture = _Picture(bins, settings.width)
        self.blocks = nn.ModuleList(_Separable(settings.width, settings.kernel) for _ in range(settings.blocks))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode ``features`` [batch, frames, bins] of ``lengths`` [batch]; padding must be zero."""
        x, lengths, real = self.picture(features, lengths)
        for block in self.blocks:
            x = x + self.dropout(block(x, real))
        return x, lengths
