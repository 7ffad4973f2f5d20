"""A model and a collection → a hypothesis for each utterance.

Batches are cut without the world size; rank r takes every size-th of them. Decoding is float32, outside autocast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from allears.decoding.greedy import greedy
from allears.errors import AudioError
from allears.loading.collate import collate
from allears.reporting import say
from allears.types import SAMPLE_RATE, Batch, Example

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

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
class Hypothesis:
    """What was said and what was heard; both as the tokenizer's normaliser leaves them.

    Attributes:
        id: of the utterance.
        reference: its transcript.
        text: what the model heard; empty where the audio could not be used.
        speaker: who spoke.
        problem: why the audio could not be used; empty when it could.
    """

    id: str
    reference: str
    text: str
    speaker: str
    problem: str


def cut(lengths: NDArray[np.int64], seconds: float) -> list[list[int]]:
    """Utterances of ``lengths`` (samples) in batches of ≤ ``seconds`` padded audio (at least one), longest first."""
    batches: list[list[int]] = []
    room = 0
    for utterance in np.argsort(-lengths, kind="stable").tolist():
        if room < 1:
            batches.append([])
            room = int(seconds * SAMPLE_RATE) // max(int(lengths[utterance]), 1)
        batches[-1].append(utterance)
        room -= 1
    return batches


@torch.no_grad()
def hypotheses(
    model: Recogniser,
    collection: Collection,
    reader: ExampleReader,
    tokenizer: Tokenizer,
    world: World,
    batch_seconds: float = BATCH_SECONDS,
) -> list[Hypothesis]:
    """A hypothesis for every utterance, in the collection's order, the same on every rank."""
    mine: dict[int, tuple[str, str]] = {}
    was_training = model.training
    model.train(False)
    for members in cut(collection.lengths, batch_seconds)[world.rank :: world.size]:
        examples, problems = _examples(reader, members)
        mine |= {utterance: ("", problem) for utterance, problem in problems.items()}
        if examples:
            batch = collate(examples).to(world.device)
            for utterance, tokens in zip(batch.utterances, greedy(*model.log_probabilities(batch)), strict=True):
                mine[utterance] = (tokenizer.decode(tokens), "")
    model.train(was_training)
    found = {utterance: heard for part in world.gather(mine) for utterance, heard in part.items()}
    return [
        Hypothesis(
            collection.id(utterance),
            tokenizer.normalise(collection.text(utterance)),
            tokenizer.normalise(found[utterance][0]),
            collection.speaker(utterance),
            found[utterance][1],
        )
        for utterance in range(len(collection))
    ]


@torch.no_grad()
def recognised(model: Recogniser, samples: NDArray[np.int16], world: World) -> list[int]:
    """Token ids heard in one waveform of int16 ``samples`` at 16 kHz."""
    nothing = np.zeros((0, 2), dtype=np.float32)
    batch = collate([Example(0, samples, np.zeros(0, dtype=np.int32), nothing, nothing)])
    return greedy(*model.log_probabilities(batch.to(world.device)))[0]


def _examples(reader: ExampleReader, utterances: list[int]) -> tuple[list[Example], dict[int, str]]:
    examples: list[Example] = []
    problems: dict[int, str] = {}
    for utterance in utterances:
        try:
            examples.append(reader.example(utterance, epoch=0))
        except AudioError as error:
            say(f"note: utterance {reader.id(utterance)} counts as not recognised: {error}")
            problems[utterance] = str(error)
    return examples, problems
