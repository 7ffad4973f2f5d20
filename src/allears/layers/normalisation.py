"""Features with mean 0 and deviation 1, over an utterance or as the training audio has them; padding never counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from allears.errors import SettingsError
from allears.layers.masking import real_frames
from allears.layers.uncast import Uncast

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-3
"""Log-mel features of sound vary by whole units; a smaller deviation is rounding (digital silence) and becomes zero."""


class UtteranceNormalisation(nn.Module):
    """Each band of each utterance with mean 0 and deviation 1 over its frames."""

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Normalise ``features`` [batch, frames, bins], padding zero, of ``lengths`` [batch] frames."""
        return _scaled(features, lengths, (1,), lengths)


class UtteranceScalarNormalisation(nn.Module):
    """All bands of an utterance together with mean 0 and (unbiased) deviation 1, so that its timbre stays."""

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Normalise ``features`` [batch, frames, bins], padding zero, of ``lengths`` [batch] frames."""
        return _scaled(features, lengths, (1, 2), lengths * features.shape[2] - 1)


class GlobalNormalisation(Uncast):
    """Each band less its mean over the training audio, over its deviation there; both are saved with the weights.

    Attributes:
        mean: float32 [bins]; NaN until they are set or loaded.
        deviation: float32 [bins]; likewise.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((bins,), torch.nan))
        self.register_buffer("deviation", torch.full((bins,), torch.nan))
        self._ready = False

    def ready(self) -> bool:
        """Whether mean and deviation are known; reads from the device until they are."""
        self._ready = self._ready or bool((self.mean + self.deviation).isfinite().all())
        return self._ready

    def set(self, mean: Tensor, deviation: Tensor) -> None:
        """Use these statistics, each [bins]."""
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Normalise ``features`` [batch, frames, bins], padding zero, of ``lengths`` [batch] frames.

        Raises:
            SettingsError: mean and deviation are neither set nor loaded.
        """
        if not self.ready():
            raise SettingsError(
                "model.features.normalisation is 'global', which needs the mean and deviation of the training audio, "
                "and there are none; set them from feature_statistics, or load a checkpoint."
            )
        real = real_frames(lengths, features.shape[1])[:, :, None]
        return (features - self.mean) * (_inverse(self.deviation) * real)


class NoNormalisation(nn.Module):
    """Features as they are."""

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002
        """The same ``features``; ``lengths`` do not matter."""
        return features


def _scaled(features: Tensor, lengths: Tensor, axes: tuple[int, ...], freedom: Tensor) -> Tensor:
    """Less the mean over ``axes``, over the deviation with ``freedom`` [batch] degrees; sums are float64.

    So what pads a batch, and how sums are split, does not show in the result.
    """
    shape = features.shape
    count = lengths[:, None, None] * (shape[2] if 2 in axes else 1)
    mean = features.sum(axes, keepdim=True, dtype=torch.float64) / count.clamp_min(1)
    real = real_frames(lengths, shape[1])[:, :, None]
    centred = (features - mean.float()) * real
    squares = centred.square().sum(axes, keepdim=True, dtype=torch.float64)
    deviation = (squares / freedom[:, None, None].clamp_min(1)).sqrt().float()
    return centred * _inverse(deviation)


def _inverse(deviation: Tensor) -> Tensor:
    return torch.where(deviation > ROUNDING, 1.0 / deviation, 0.0)
