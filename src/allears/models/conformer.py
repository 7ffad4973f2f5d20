"""The Conformer (Gulati et al., Interspeech 2020): features [batch, frames, bins] → states [batch, frames / 4, width].

Small convolutions over time and frequency shorten time by 4 or 8. In each block half a feed-forward layer,
self-attention, a convolution over time and another half of a feed-forward layer each add to the state. The paper
normalises it after each block; here that is a setting, since short trainings learn faster without it: on three hours of
synthetic sentences the loss per token of a million parameters fell to 3.2 in 160 steps of 24 s without, and to 3.9 with
it (rate 1e-2; 3.9 too with one norm after the last block). Batch instead of layer normalisation after the subsampling
then brought it from 2.3 to 1.6 in 130 steps (rate 5e-3).

Padding never reaches a real frame: attention does not see it, convolutions see zeros there, and batch normalisation
does not count it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field, PositiveInt, ValidationInfo, field_validator
from torch import nn

from allears.layers.attention import Positions, SelfAttention, position_table, visible_keys
from allears.layers.batch_norm import MaskedBatchNorm
from allears.layers.convolution import Depthwise, Kernel
from allears.layers.dropout import Dropout
from allears.layers.subsampling import Subsampling, subsampled
from allears.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


class ConformerSettings(Settings):
    """Size and kind of the encoder; the default has 1.7 million parameters.

    Attributes:
        kind: ``conformer``.
        width: size of a frame.
        blocks: how many stand one after the other.
        heads: of the attention; each gets width / heads, which must be even.
        feed_forward: inner size of the feed-forward layers, in widths.
        kernel: frames (after subsampling, 40 or 80 ms each) that a block's convolution sees; odd.
        dropout: inside the feed-forward layers and on all that is added to the state.
        subsampling: feature frames per state: 4, or 8, which halves the work but leaves fewer places for tokens.
        subsampling_channels: of its first convolution.
        positions: ``rotary``, or ``relative`` as in the paper, which takes more time and memory.
        norm: in the convolution and after the subsampling: ``batch``, or ``layer``, which treats each frame by itself.
        block_norm: normalise the state after each block, as in the paper; for long trainings.
        causal: the convolution sees no later frame; attention and subsampling still do.
    """

    kind: Literal["conformer"] = "conformer"
    width: PositiveInt = 128
    blocks: PositiveInt = 4
    heads: PositiveInt = 4
    feed_forward: PositiveInt = 4
    kernel: Kernel = 15
    dropout: float = Field(default=0.1, ge=0, lt=1)
    subsampling: Literal[4, 8] = 4
    subsampling_channels: PositiveInt = 32
    positions: Positions = "rotary"
    norm: Literal["batch", "layer"] = "batch"
    block_norm: bool = False
    causal: bool = False

    @field_validator("heads")
    @classmethod
    def _fits(cls, value: int, info: ValidationInfo) -> int:
        width = info.data.get("width")
        if width is not None and width % (2 * value):
            raise ValueError(f"must cut the width, {width}, into parts of one even size")
        return value

    def build(self, bins: int) -> ConformerEncoder:
        """The encoder for features of ``bins`` bands."""
        return ConformerEncoder(self, bins)

    def frames(self, feature_frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames that come out for ``feature_frames`` that go in."""
        return subsampled(feature_frames, self.subsampling)


class _Norm(nn.Module):
    """The norm that the settings choose, in full precision under autocast too."""

    def __init__(self, settings: ConformerSettings) -> None:
        super().__init__()
        self.norm = MaskedBatchNorm(settings.width) if settings.norm == "batch" else nn.LayerNorm(settings.width)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Normalise ``x`` [batch, frames, width]; ``real`` [batch, frames, 1] is 0 on padding, else 1."""
        x = x.to(self.norm.weight.dtype)
        normed: Tensor = self.norm(x, real) if isinstance(self.norm, MaskedBatchNorm) else self.norm(x)
        return normed


class _FeedForward(nn.Sequential):
    """Norm, wide layer, SiLU, back."""

    def __init__(self, settings: ConformerSettings) -> None:
        inner = settings.feed_forward * settings.width
        super().__init__(
            nn.LayerNorm(settings.width),
            nn.Linear(settings.width, inner),
            nn.SiLU(),
            Dropout(settings.dropout),
            nn.Linear(inner, settings.width),
            Dropout(settings.dropout),
        )


class _Convolution(nn.Module):
    """Norm, gated pointwise, depthwise, norm, SiLU, pointwise."""

    def __init__(self, settings: ConformerSettings) -> None:
        super().__init__()
        width = settings.width
        self.norm = nn.LayerNorm(width)
        self.input = nn.Linear(width, 2 * width)
        self.depthwise = Depthwise(width, settings.kernel, settings.causal)
        self.inner_norm = _Norm(settings)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Convolve ``x`` [batch, frames, width]; ``real`` [batch, frames, 1] is 0 on padding, else 1."""
        gated = nn.functional.glu(self.input(self.norm(x)))
        x = self.depthwise(gated * real.to(gated.dtype))
        x = self.inner_norm(x, real)
        convolved: Tensor = self.output(nn.functional.silu(x))
        return convolved


class ConformerBlock(nn.Module):
    """Half a feed-forward layer, attention, convolution, half a feed-forward layer, norm if so set."""

    def __init__(self, settings: ConformerSettings) -> None:
        super().__init__()
        self.first = _FeedForward(settings)
        self.attention_norm = nn.LayerNorm(settings.width)
        self.attention = SelfAttention(settings.width, settings.heads, settings.positions)
        self.convolution = _Convolution(settings)
        self.second = _FeedForward(settings)
        self.norm = nn.LayerNorm(settings.width) if settings.block_norm else nn.Identity()
        self.dropout = Dropout(settings.dropout)

    def forward(self, x: Tensor, real: Tensor, visible: Tensor, table: Tensor) -> Tensor:
        """A new state from ``x`` [batch, frames, width]; for the others see `_Convolution` and `SelfAttention`."""
        x = torch.add(x, self.first(x), alpha=0.5)
        x = x + self.dropout(self.attention(self.attention_norm(x), visible, table))
        x = x + self.dropout(self.convolution(x, real))
        x = torch.add(x, self.second(x), alpha=0.5)
        normed: Tensor = self.norm(x)
        return normed


class ConformerEncoder(nn.Module):
    """See the head of this file."""

    def __init__(self, settings: ConformerSettings, bins: int) -> None:
        super().__init__()
        self.settings = settings
        self.width = settings.width
        self.subsampling = Subsampling(bins, settings.width, settings.subsampling, settings.subsampling_channels)
        self.norm = _Norm(settings)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(ConformerBlock(settings) for _ in range(settings.blocks))

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode ``features`` [batch, frames, bins] of ``lengths`` [batch].

        Returns:
            States [batch, frames / subsampling, width], of any finite value on padding, and their lengths [batch].
        """
        x, lengths, real = self.subsampling(features, lengths)
        x = self.dropout(self.norm(x, real))
        visible = visible_keys(lengths, x.shape[1])
        table = position_table(self.settings.positions, x.shape[1], self.width, self.settings.heads, x.device)
        for block in self.blocks:
            x = block(x, real, visible, table)
        return x, lengths
