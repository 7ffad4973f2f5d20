"""One utterance as the model hears it: its samples and levels, and the features that reach the encoder."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
import torch

from allears.files import written
from allears.loading.collate import collate
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.models.ctc import CtcModel
    from allears.types import Example

FULL_SCALE = 32768
WINDOW, HOP = 400, 160  # samples: 25 ms, 10 ms
SILENCE_DECIBELS = 25.0
"""A window this far below the loudest one of its utterance counts as silence."""


@dataclass(frozen=True, slots=True)
class Levels:
    """How loud an utterance is.

    Attributes:
        level: root mean square, in dB below full scale (a full-scale square wave has 0); -inf for digital silence.
        peak: largest magnitude, likewise.
        silence: share of the 25 ms windows that lie 25 dB or more below the loudest one; 1 for digital silence.
        dc_offset: mean, as a share of full scale.
        clipped: samples at full scale.
    """

    level: float
    peak: float
    silence: float
    dc_offset: float
    clipped: int


def levels(waveform: NDArray[np.int16]) -> Levels:
    """Measure int16 samples [samples]; the levels and the silence leave the constant offset out."""
    samples = waveform.astype(np.float64) / FULL_SCALE
    offset = float(samples.mean()) if len(samples) else 0.0
    moving = samples - offset
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(moving, (0, max(0, WINDOW - len(moving)))), WINDOW
    )[::HOP]  # fmt: skip  # [windows, 400]
    power = np.square(windows).mean(axis=1)
    quiet = power <= power.max() * 10 ** (-SILENCE_DECIBELS / 10)
    return Levels(
        level=_decibels(math.sqrt(float(np.square(moving).mean())) if len(moving) else 0.0),
        peak=_decibels(float(np.abs(samples).max(initial=0.0))),
        silence=float(quiet.mean()),
        dc_offset=offset,
        clipped=int(((waveform == FULL_SCALE - 1) | (waveform == -FULL_SCALE)).sum()),
    )


def _decibels(amplitude: float) -> float:
    return 20 * math.log10(amplitude) if amplitude > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Heard:
    """An utterance before and after augmentation.

    Attributes:
        id: in its dataset.
        text: as it came.
        normalised: as the tokenizer sees it.
        speaker: empty when unknown.
        tokens: token ids and the text of each; None without a tokenizer.
        epoch: whose draws these are, from 0.
        kind: what the features are, in words.
        before: int16 samples [samples] at 16 kHz.
        after: the same after augmentation of the waveform.
        features: float32 [frames, bins] of ``before``.
        augmented: float32 [frames, bins] of ``after``, before SpecAugment.
        hidden: booleans [frames, bins], what SpecAugment hides of ``augmented``.
        levels: of ``before``.
    """

    id: str
    text: str
    normalised: str
    speaker: str
    tokens: Sequence[tuple[int, str]] | None
    epoch: int
    kind: str
    before: NDArray[np.int16]
    after: NDArray[np.int16]
    features: NDArray[np.float32]
    augmented: NDArray[np.float32]
    hidden: NDArray[np.bool_]
    levels: Levels

    @property
    def seconds(self) -> float:
        """Its length before augmentation."""
        return len(self.before) / SAMPLE_RATE

    @property
    def waveform_changes(self) -> bool:
        """Whether augmentation changes the samples."""
        return not np.array_equal(self.before, self.after)


def encoder_input(model: CtcModel, example: Example, training: bool) -> NDArray[np.float32]:
    """The features [frames, bins] of an example as they reach the encoder, whatever the model does before it."""
    given: list[tuple[torch.Tensor, torch.Tensor]] = []
    hook = model.encoder.register_forward_pre_hook(lambda _, arguments: given.append(arguments))
    try:
        with torch.no_grad():
            model.train(training).log_probabilities(collate([example]))
    finally:
        hook.remove()
        model.eval()
    (features, lengths), *_ = given
    found: NDArray[np.float32] = features[0, : int(lengths[0])].float().cpu().numpy()
    return found


def hear(model: CtcModel, before: Example, after: Example, **described: Any) -> Heard:
    """Gather what a picture of an utterance shows.

    Args:
        model: whose frontend is used; it stays as it is but for the running statistics of batch normalisation.
        before: the utterance as it lies in the dataset, nothing drawn.
        after: the same with an epoch's draws.
        described: the fields of `Heard` that are not computed here.
    """
    augmented = encoder_input(model, after, training=False)
    return Heard(
        before=before.waveform,
        after=after.waveform,
        features=encoder_input(model, before, training=False),
        augmented=augmented,
        hidden=encoder_input(model, after, training=True) != augmented,
        levels=levels(before.waveform),
        **described,
    )


def write_audio(path: Path, waveform: NDArray[np.int16]) -> None:
    """Write samples [samples] at 16 kHz as a 16-bit wav file."""
    made = io.BytesIO()  # libsndfile loses the reason why a file that it does not open itself cannot be written
    soundfile.write(made, waveform, SAMPLE_RATE, format="WAV", subtype="PCM_16")
    with written(path) as file:
        file.write(made.getbuffer())
