"""SpecAugment (Park et al., Interspeech 2019): bands are drawn by key in the loader, applied here on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from pydantic import Field

from allears.layers.masking import real_frames
from allears.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class SpecAugmentSettings(Settings):
    """How many bands are masked, and how wide they are at most.

    Attributes:
        frequency_masks: bands of mel bins.
        frequency_width: widest, as a share of the bins; 27 of 80 is the paper's.
        time_masks: stretches of time.
        time_width: longest, as a share of the utterance.
    """

    frequency_masks: int = Field(default=2, ge=0, le=20)
    frequency_width: float = Field(default=27 / 80, ge=0, le=1)
    time_masks: int = Field(default=10, ge=0, le=100)
    time_width: float = Field(default=0.05, ge=0, le=1)


def draw_bands(count: int, width: float, generator: np.random.Generator) -> NDArray[np.float32]:
    """``count`` bands [count, 2] (start, end) as fractions of the axis, each up to ``width`` wide."""
    widths = generator.random(count) * width
    starts = generator.random(count) * (1.0 - widths)
    return np.stack((starts, starts + widths), axis=1).astype(np.float32)


def masked(
    features: Tensor, lengths: Tensor, frequency_masks: Tensor, time_masks: Tensor, fill: Tensor | float = 0.0
) -> Tensor:
    """Hide the bands; padding stays as it is.

    Args:
        features: [batch, frames, bins].
        lengths: [batch], in frames.
        frequency_masks: fractions of the bins [batch, masks, 2].
        time_masks: fractions of each utterance's frames [batch, masks, 2].
        fill: what stands in the bands: a number, or one for each utterance [batch, 1, 1].
    """
    bins, frames = features.shape[2], features.shape[1]
    everywhere = torch.full_like(lengths, bins)
    hidden = _inside(frequency_masks, everywhere, bins)[:, None, :] | _inside(time_masks, lengths, frames)[:, :, None]
    return torch.where(hidden & real_frames(lengths, frames)[:, :, None], fill, features)


def _inside(bands: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Whether each place [batch, size] lies in one of ``bands`` [batch, masks, 2] scaled by ``lengths`` [batch]."""
    edges = (bands * lengths[:, None, None]).round()  # [batch, masks, 2]
    places = torch.arange(size, device=bands.device)
    inside = (places >= edges[:, :, :1]) & (places < edges[:, :, 1:])  # [batch, masks, size]
    return inside.any(dim=1)
