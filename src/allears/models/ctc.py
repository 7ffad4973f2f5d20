"""Connectionist temporal classification: frontend, encoder, one linear layer (Graves et al., ICML 2006)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Tag
from torch import nn

from allears.layers.augment import SpecAugmentSettings, masked
from allears.layers.ctc_loss import ctc_loss
from allears.layers.features import FeatureSettings
from allears.models.conformer import ConformerSettings
from allears.models.convolutional import ConvolutionalSettings
from allears.settings import Settings, kind_or
from allears.types import Loss

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from allears.types import Batch


EncoderSettings = Annotated[
    Annotated[ConvolutionalSettings, Tag("convolutional")] | Annotated[ConformerSettings, Tag("conformer")],
    kind_or("convolutional"),
]


class ModelSettings(Settings):
    """A recogniser from waveform to loss.

    Attributes:
        features: what it hears.
        spec_augment: what is hidden from it in training; none hides nothing.
        encoder: what it thinks with; its ``kind`` is ``convolutional`` unless it is said.
    """

    features: FeatureSettings = FeatureSettings()
    spec_augment: SpecAugmentSettings | None = SpecAugmentSettings()
    encoder: EncoderSettings = ConvolutionalSettings()

    def build(self, vocabulary: int) -> CtcModel:
        """The model for ``vocabulary`` token ids, 0 being the blank."""
        return CtcModel(self, vocabulary)

    def output_frames(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frames in which utterances of ``samples`` [n] can place their tokens."""
        return self.encoder.frames(self.features.frames(samples))


class CtcModel(nn.Module):
    """Waveforms → log-probabilities of tokens, blank at id 0."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.frontend = settings.features.build()
        self.encoder = settings.encoder.build(settings.features.bins)
        self.output = nn.Linear(self.encoder.width, vocabulary)

    def log_probabilities(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Float32 log-probabilities [batch, frames, vocabulary] and lengths [batch] in frames."""
        features, lengths = self.frontend(batch.waveforms, batch.waveform_lengths)
        if self.training and self.settings.spec_augment is not None:
            fill = self.frontend.hiding_value(features, lengths)
            features = masked(features, lengths, batch.frequency_masks, batch.time_masks, fill)
        states, lengths = self.encoder(features.to(self.output.weight.dtype), lengths)
        return self.output(states).float().log_softmax(dim=-1), lengths

    def forward(self, batch: Batch) -> Loss:
        """The negative log-likelihood, summed over the utterances; its count is the number of target tokens."""
        scores, lengths = self.log_probabilities(batch)
        losses = ctc_loss(scores, batch.tokens, lengths, batch.token_lengths)
        return Loss({"ctc": losses.sum()}, {"ctc": batch.token_lengths.sum()})
