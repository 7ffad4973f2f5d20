"""A model and a collection → what is said in each utterance.

Batches are cut without the world size; rank r takes every size-th of them. Decoding is float32, outside autocast.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from allears import watching
from allears.decoding.greedy import BestPath, greedy
from allears.errors import AudioError
from allears.evaluation.segments import pieces
from allears.loading.collate import collate
from allears.reporting import Progress, say
from allears.scripts import spaced
from allears.types import SAMPLE_RATE, Batch, Example

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from allears.evaluation.segments import Piece
    from allears.loading.collection import Collection
    from allears.loading.example import ExampleReader
    from allears.text.tokenizer import Tokenizer
    from allears.world import World

BATCH_SECONDS = 120.0


class Recogniser(Protocol):
    """What decoding needs of a model."""

    training: bool

    def log_probabilities(self, batch: Batch) -> tuple[Tensor, Tensor]: ...

    def train(self, mode: bool = True) -> object: ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most that is decoded at a time (but one utterance): ``seconds`` of padded audio, and ``utterances``."""

    seconds: float = BATCH_SECONDS
    utterances: int | None = None

    def hold(self, utterances: int, longest: int) -> bool:
        """Whether so many utterances, padded to ``longest`` samples, are one batch."""
        few = self.utterances is None or utterances <= self.utterances
        return utterances <= 1 or (few and utterances * longest <= self.seconds * SAMPLE_RATE)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is said from ``start`` to ``end`` (seconds) of a recording, in ``tokens`` tokens; see `BestPath`."""

    start: float
    end: float
    text: str
    confidence: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is said in one recording.

    Attributes:
        stretches: one after the other, together the whole recording.
        problem: why the audio (from the last stretch on) could not be used; empty when it could.
    """

    stretches: tuple[Stretch, ...]
    problem: str = ""

    @property
    def text(self) -> str:
        """All that is said."""
        return spaced(" ".join(stretch.text for stretch in self.stretches if stretch.text))

    @property
    def confidence(self) -> float:
        """Mean over the tokens of all stretches, of the stretches where there is no token, and 0 without any."""
        if not self.stretches:
            return 0.0
        weights = [stretch.tokens for stretch in self.stretches]
        if not any(weights):
            weights = [1] * len(weights)
        total = sum(stretch.confidence * weight for stretch, weight in zip(self.stretches, weights, strict=True))
        return min(total / sum(weights), 1.0)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What was said and what was heard, both as they came.

    Attributes:
        id: of the utterance.
        reference: its transcript.
        text: what the model heard; empty where the audio could not be used.
        speaker: who spoke.
        confidence: of the model in its text, in [0, 1]; see `BestPath`.
        problem: why the audio could not be used; empty when it could.
    """

    id: str
    reference: str
    text: str
    speaker: str
    confidence: float
    problem: str


def cut(lengths: NDArray[np.int64], limits: BatchLimits) -> list[list[int]]:
    """Utterances of ``lengths`` (samples) in batches within ``limits``, longest first."""
    batches: list[list[int]] = []
    longest = 0
    for utterance in np.argsort(-lengths, kind="stable").tolist():
        if not batches or not limits.hold(len(batches[-1]) + 1, longest):
            batches.append([])
            longest = max(int(lengths[utterance]), 1)
        batches[-1].append(utterance)
    return batches


def hypotheses(
    model: Recogniser,
    collection: Collection,
    reader: ExampleReader,
    tokenizer: Tokenizer,
    world: World,
    limits: BatchLimits = BatchLimits(),
    task: str = "",
) -> list[Hypothesis]:
    """A hypothesis for every utterance, in the collection's order, the same on every rank; see `transcribed`."""
    found = transcribed(model, collection, reader, tokenizer, world, limits, task)
    return [
        Hypothesis(
            collection.id(utterance),
            collection.text(utterance),
            one.text,
            collection.speaker(utterance),
            one.confidence,
            one.problem,
        )
        for utterance, one in enumerate(found)
    ]


def transcribed(
    model: Recogniser,
    collection: Collection,
    reader: ExampleReader,
    tokenizer: Tokenizer,
    world: World,
    limits: BatchLimits,
    task: str = "",
) -> list[Transcript]:
    """What is said in every utterance, in the collection's order, the same on every rank.

    Args:
        model: hears; it is left in the mode it was in.
        collection: the utterances.
        reader: reads them.
        tokenizer: makes text of tokens.
        world: shares the batches.
        limits: of a batch; they do not change what is heard.
        task: the name under which progress is shown; empty shows none.
    """
    mine: dict[int, Transcript] = {}
    with decoding(model, world) as hear, contextlib.ExitStack() as stack:
        share = cut(collection.lengths, limits)[world.rank :: world.size]
        progress = Progress(task, float(sum(map(len, share))), "utterances") if task and world.leads else None
        if progress is not None:
            stack.enter_context(progress)
        stack.enter_context(watching.named(lambda numbers: [reader.id(number) for number in numbers]))
        for members in share:
            watching.go_on(members)
            waveforms, problems = _waveforms(reader, members)
            mine |= {utterance: Transcript((), problem) for utterance, problem in problems.items()}
            parts = [(utterance, piece) for utterance, samples in waveforms.items() for piece in pieces([samples])]
            stretches: dict[int, list[Stretch]] = {utterance: [] for utterance in waveforms}
            for utterance, stretch in zip(
                (utterance for utterance, _ in parts),
                stretches_of([piece for _, piece in parts], hear, tokenizer, limits),
                strict=True,
            ):
                stretches[utterance].append(stretch)
            mine |= {utterance: Transcript(tuple(found)) for utterance, found in stretches.items()}
            if progress is not None:
                progress.advance(len(members))
    found = {utterance: heard for part in world.gather(mine) for utterance, heard in part.items()}
    return [found[utterance] for utterance in range(len(collection))]


class Hear(Protocol):
    """Best paths of one batch of waveforms [n] of int16 at 16 kHz."""

    def __call__(self, waveforms: Sequence[NDArray[np.int16]]) -> list[BestPath]: ...


@contextlib.contextmanager
def decoding(model: Recogniser, world: World) -> Iterator[Hear]:
    """Yield what hears a batch with ``model`` in evaluation mode; afterwards it is in the mode it was in."""

    def hear(waveforms: Sequence[NDArray[np.int16]]) -> list[BestPath]:
        examples = [Example(n, samples, _NO_TOKENS, _NO_BANDS, _NO_BANDS) for n, samples in enumerate(waveforms)]
        return greedy(*model.log_probabilities(collate(examples).to(world.device)))

    was_training = model.training
    model.train(False)
    try:
        with torch.no_grad(), torch.autocast(world.device.type, enabled=False):
            yield hear
    finally:
        model.train(was_training)


_NO_TOKENS = np.zeros(0, dtype=np.int32)
_NO_BANDS = np.zeros((0, 2), dtype=np.float32)


def stretches_of(parts: Sequence[Piece], hear: Hear, tokenizer: Tokenizer, limits: BatchLimits) -> list[Stretch]:
    """What is said in each of ``parts``. In digital silence nothing is, and no model is asked."""
    paths = [BestPath([], 1.0)] * len(parts)
    audible = [n for n, part in enumerate(parts) if part.samples.min() != part.samples.max()]
    lengths = np.array([len(parts[n].samples) for n in audible], dtype=np.int64)
    for members in cut(lengths, limits):
        batch = [audible[member] for member in members]
        for n, path in zip(batch, hear([parts[n].samples for n in batch]), strict=True):
            paths[n] = path
    return [
        Stretch(
            round(part.start / SAMPLE_RATE, 3),
            round((part.start + len(part.samples)) / SAMPLE_RATE, 3),
            tokenizer.decode(path.tokens),
            path.confidence,
            len(path.tokens),
        )
        for part, path in zip(parts, paths, strict=True)
    ]


def _waveforms(reader: ExampleReader, utterances: list[int]) -> tuple[dict[int, NDArray[np.int16]], dict[int, str]]:
    """Samples [n] of each utterance whose audio can be used, and why the others' cannot."""
    waveforms: dict[int, NDArray[np.int16]] = {}
    problems: dict[int, str] = {}
    for utterance in utterances:
        try:
            waveforms[utterance] = reader.example(utterance, epoch=0).waveform
        except AudioError as error:
            say(f"note: utterance {reader.id(utterance)} counts as not recognised: {error}")
            problems[utterance] = str(error)
    return waveforms, problems
