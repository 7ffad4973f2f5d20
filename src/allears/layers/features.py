"""The frontend: waveforms → normalised log-mel features on the device, in float32."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from allears.layers.kaldi_fbank import KaldiFbank
from allears.layers.log_mel import LogMel
from allears.layers.mel import BINS
from allears.layers.normalisation import (
    GlobalNormalisation,
    NoNormalisation,
    UtteranceNormalisation,
    UtteranceScalarNormalisation,
)
from allears.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from allears.layers.mel import MelFeatures

_KINDS: dict[str, Callable[[], MelFeatures]] = {
    "kaldi_fbank": KaldiFbank,
    "log_mel_400_160": partial(LogMel, 400, 160, added=1e-9),
    "log_mel_1024_256": partial(LogMel, 1024, 256, least=1e-5),
}
_NORMALISATIONS: dict[str, Callable[[], nn.Module]] = {
    "global": partial(GlobalNormalisation, BINS),
    "utterance": UtteranceNormalisation,
    "utterance_scalar": UtteranceScalarNormalisation,
    "none": NoNormalisation,
}


class FeatureSettings(Settings):
    """What the model hears: 80 log-mel bands.

    Attributes:
        kind: ``kaldi_fbank``: as Kaldi computes them, 100 frames a second. ``log_mel_400_160``: Fourier transforms of
            400 samples every 160, log(x + 1e-9). ``log_mel_1024_256``: of 1,024 every 256, log(max(x, 1e-5)), usually
            with ``utterance_scalar``.
        normalisation: what gets mean 0 and deviation 1. ``global``: each band over the training audio, for streaming
            and short commands. ``utterance``: each band over the utterance, for sentences. ``utterance_scalar``: all
            bands of an utterance together. ``none``: nothing.
    """

    kind: Literal["kaldi_fbank", "log_mel_400_160", "log_mel_1024_256"] = "kaldi_fbank"
    normalisation: Literal["global", "utterance", "utterance_scalar", "none"] = "global"

    @property
    def bins(self) -> int:
        """Features of a frame."""
        return BINS

    def build(self) -> Frontend:
        """The frontend."""
        return Frontend(self)

    def frames(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames of utterances of ``samples`` [n]."""
        return _counting(self.kind).frames(samples)


@cache
def _counting(kind: str) -> MelFeatures:
    """Features of a kind, only to count frames by: millions of utterances are counted in many parts."""
    return _KINDS[kind]()


class Frontend(nn.Module):
    """From waveforms to what an encoder takes; the same for an utterance in any batch."""

    def __init__(self, settings: FeatureSettings) -> None:
        super().__init__()
        self.extract = _KINDS[settings.kind]()
        self.normalise = _NORMALISATIONS[settings.normalisation]()

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised features.

        Args:
            waveforms: int16 [batch, samples], or of another type on the scale of int16.
            lengths: [batch], in samples.

        Returns:
            Float32 features [batch, frames, bins] and their lengths [batch] in frames; padding is zero.

        Raises:
            SettingsError: the normalisation is ``global`` and its statistics are neither set nor loaded.
        """
        features, lengths = self.extract(waveforms, lengths)
        with torch.autocast(waveforms.device.type, enabled=False):
            return self.normalise(features, lengths), lengths

    def lacks_statistics(self) -> bool:
        """Whether `set_statistics` (or a checkpoint) must give it the statistics of the training audio first."""
        return isinstance(self.normalise, GlobalNormalisation) and not self.normalise.ready()

    def set_statistics(self, mean: Tensor, deviation: Tensor) -> None:
        """Give a ``global`` normalisation its mean and deviation, each [bins]; the others need none."""
        if isinstance(self.normalise, GlobalNormalisation):
            self.normalise.set(mean, deviation)

    def hiding_value(self, features: Tensor, lengths: Tensor) -> Tensor | float:
        """What hides a part of normalised ``features`` of ``lengths`` [batch]: their mean, [batch, 1, 1] or a number.

        Normalised features have the mean 0; those that are not have the mean of their utterance.
        """
        if isinstance(self.normalise, NoNormalisation):
            count = (lengths * features.shape[2]).clamp_min(1)[:, None, None]
            return features.sum((1, 2), keepdim=True) / count
        return 0.0
