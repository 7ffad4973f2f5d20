"""A small convolutional encoder: features [batch, frames, bins] → states [batch, frames / 4, width].

Two strided convolutions shorten time by four; residual blocks of depthwise and pointwise convolutions follow
(QuartzNet: Kriman et al., ICASSP 2020), with batch normalisation that ignores padding.
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


class _Block(nn.Module):
    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width, bias=False)
        self.pointwise = nn.Conv1d(width, width, 1, bias=False)
        self.norm = MaskedBatchNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        y: Tensor = self.dropout(nn.functional.relu(self.norm(self.pointwise(self.depthwise(x)), real)))
        return (x + y) * real


class _Strided(nn.Module):
    """Halves the number of frames."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(channels, width, 5, stride=2, padding=2, bias=False)
        self.norm = MaskedBatchNorm(width)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.convolution(x)
        lengths = torch.div(lengths + 1, 2, rounding_mode="floor")
        real = real_frames(lengths, x.shape[2])[:, None, :].to(x.dtype)
        return nn.functional.relu(self.norm(x, real)) * real, lengths, real


class ConvolutionalEncoder(nn.Module):
    """See the head of this file."""

    def __init__(self, settings: ConvolutionalSettings, bins: int) -> None:
        super().__init__()
        self.width = settings.width
        self.first = _Strided(bins, settings.width)
        self.second = _Strided(settings.width, settings.width)
        self.blocks = nn.ModuleList(
            _Block(settings.width, settings.kernel, settings.dropout) for _ in range(settings.blocks)
        )

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode ``features`` [batch, frames, bins] of ``lengths`` [batch]; padding must be zero."""
        x, lengths, _ = self.first(features.transpose(1, 2), lengths)
        x, lengths, real = self.second(x, lengths)
        for block in self.blocks:
            x = block(x, real)
        return x.transpose(1, 2), lengths
