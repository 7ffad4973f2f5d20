"""A small convolutional encoder: features [batch, frames, bins] → states [batch, frames / 4, width].

Two strided convolutions over time and frequency, the second depthwise-separable, shorten time by four; residual blocks
of depthwise-separable convolutions over time follow (QuartzNet: Kriman et al., ICASSP 2020), with batch normalisation
that ignores padding. Channels stand last throughout, so that pointwise convolutions are plain products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt
from torch import nn

from allears.layers.batch_norm import MaskedBatchNorm
from allears.layers.convolution import Depthwise, Kernel
from allears.layers.dropout import Dropout
from allears.layers.subsampling import Subsampling, subsampled
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
    kernel: Kernel = 15
    dropout: float = Field(default=0.1, ge=0, lt=1)

    def build(self, bins: int) -> ConvolutionalEncoder:
        """The encoder for features of ``bins`` bands."""
        return ConvolutionalEncoder(self, bins)

    def frames(self, feature_frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames that come out for ``feature_frames`` that go in."""
        return subsampled(feature_frames, SUBSAMPLING)


class _Separable(nn.Module):
    """Depthwise, pointwise, batch norm, ReLU; padding comes out as zeros."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = Depthwise(width, kernel)
        self.pointwise = nn.Linear(width, width, bias=False)
        self.norm = MaskedBatchNorm(width)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.pointwise(self.depthwise(x)), real)
        return normed.relu() * real


class ConvolutionalEncoder(nn.Module):
    """See the head of this file."""

    def __init__(self, settings: ConvolutionalSettings, bins: int) -> None:
        super().__init__()
        self.width = settings.width
        self.picture = Subsampling(bins, settings.width, SUBSAMPLING, PICTURE)
        self.norm = MaskedBatchNorm(settings.width)
        self.blocks = nn.ModuleList(_Separable(settings.width, settings.kernel) for _ in range(settings.blocks))
        self.dropout = Dropout(settings.dropout)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode ``features`` [batch, frames, bins] of ``lengths`` [batch]."""
        x, lengths, real = self.picture(features, lengths)
        x = self.norm(x, real).relu() * real
        for block in self.blocks:
            x = x + self.dropout(block(x, real))
        return x, lengths
