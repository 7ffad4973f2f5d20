"""The nouns: what one utterance is at each stop of its trip from a corpus to an optimiser step.

Utterance → (shard) → Segment → Example → Batch → Loss → StepReport
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, device

SAMPLE_RATE = 16_000
"""Samples per second of all audio after ``prepare``."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One transcribed stretch of speech, as a corpus reader finds it and as a line of a manifest says it.

    Attributes:
        id: unique in its dataset.
        audio: path of the file that holds it.
        start: where it begins in that file, in seconds.
        duration: its length in seconds; None means to the end of the file.
        text: the transcript as it came.
        speaker: who speaks; empty when unknown.
        language: BCP 47 tag such as ``en`` or ``zh``; empty when unknown.
        split: the part of the corpus it belongs to, such as ``train`` or ``test``; empty when there is none.
        extra: every other field that the corpus has, kept as found.
    """

    id: str
    audio: str
    text: str
    start: float = 0.0
    duration: float | None = None
    speaker: str = ""
    language: str = ""
    split: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejection:
    """An utterance that cannot be used, and why: ``reason`` is for counting, ``detail`` for reading."""

    id: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Segment:
    """The audio of one utterance as it lies in a shard: int16 samples at 16 kHz, or a FLAC stream of them."""

    encoding: Literal["pcm16", "flac"]
    data: bytes


@dataclass(frozen=True, slots=True)
class Example:
    """One utterance, decoded and tokenised, ready for a batch.

    Attributes:
        utterance: its index in the training list (or in the dataset, for evaluation).
        waveform: int16 samples [samples] at 16 kHz.
        tokens: int32 token ids [tokens].
        frequency_masks: SpecAugment bands as fractions of the bins (start, end) [masks, 2].
        time_masks: SpecAugment bands as fractions of the frames (start, end) [masks, 2].
    """

    utterance: int
    waveform: NDArray[np.int16]
    tokens: NDArray[np.int32]
    frequency_masks: NDArray[np.float32]
    time_masks: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: what one device runs at a time.

    Attributes:
        utterances: indices [batch], on the CPU; not needed by the model.
        waveforms: int16 [batch, samples], zero-padded.
        waveform_lengths: int64 [batch], in samples.
        tokens: int64 [batch, tokens], zero-padded.
        token_lengths: int64 [batch].
        frequency_masks: float32 [batch, masks, 2], fractions of the bins.
        time_masks: float32 [batch, masks, 2], fractions of each utterance's own frames.
    """

    utterances: list[int]
    waveforms: Tensor
    waveform_lengths: Tensor
    tokens: Tensor
    token_lengths: Tensor
    frequency_masks: Tensor
    time_masks: Tensor

    def to(self, where: device) -> Batch:
        """The same batch on another device; copies from pinned memory do not block."""
        return Batch(
            self.utterances,
            *(tensor.to(where, non_blocking=True) for tensor in self.tensors()),
        )

    def pinned(self) -> Batch:
        """The same batch in page-locked memory."""
        return Batch(self.utterances, *(tensor.pin_memory() for tensor in self.tensors()))

    def only(self, row: int) -> Batch:
        """The utterance in ``row`` alone, padded as it is."""
        return Batch([self.utterances[row]], *(tensor[row : row + 1] for tensor in self.tensors()))

    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the order of the fields."""
        return (
            self.waveforms,
            self.waveform_lengths,
            self.tokens,
            self.token_lengths,
            self.frequency_masks,
            self.time_masks,
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """One or more sums, each with its own count; the step divides once, by the count of the whole step.

    Attributes:
        sums: name → scalar tensor with gradient, summed over a micro-batch.
        counts: name → scalar tensor, how many terms stand in that sum (target tokens, say).
    """

    sums: dict[str, Tensor]
    counts: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Where the time of one step went, in seconds."""

    data: float
    compute: float
    communication: float
    other: float


@dataclass(frozen=True, slots=True)
class Slowest:
    """The rank for which the others waited in a step: the seconds that it waited for data and computed."""

    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one optimiser step did; the same on all ranks but for ``seconds`` and ``memory_bytes``.

    Attributes:
        step: the plan step, from 0; the position of the run.
        applied: how many optimiser steps have been applied, this one included.
        epoch: the pass over the data.
        loss: the sum over the whole step divided by its count.
        grad_norm: global norm before clipping.
        clipped: whether the norm was above the bound.
        learning_rate: as used by this step.
        loss_scale: gradient scaling in use; 1 without fp16.
        utterances: how many were used, on all ranks.
        audio_seconds: their audio, without padding.
        tokens: their target tokens.
        padding: share of the padded audio that is padding, over the step.
        seconds: this rank's split of the step.
        memory_bytes: peak memory of this rank: the allocator's on a GPU, resident memory on a CPU.
        rejected: how many planned utterances could not be used.
        slowest: the rank for which the others waited.
    """

    step: int
    applied: int
    epoch: int
    loss: float
    grad_norm: float
    clipped: bool
    learning_rate: float
    loss_scale: float
    utterances: int
    audio_seconds: float
    tokens: int
    padding: float
    seconds: StepSeconds
    memory_bytes: int
    rejected: int
    slowest: Slowest
