from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allears.errors import AudioError
from allears.evaluation.result import rates
from allears.evaluation.transcribe import Hypothesis, cut, hypotheses, recognised
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import CtcModel, ModelSettings
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.types import SAMPLE_RATE
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONE = World(0, 1, 0, 1, torch.device("cpu"))


@given(st.lists(st.integers(0, 20 * SAMPLE_RATE), max_size=80), st.floats(1, 100))
def test_each_utterance_is_in_one_batch_of_bounded_padded_audio(lengths: list[int], seconds: float) -> None:
    samples = np.array(lengths, dtype=np.int64)
    batches = cut(samples, seconds)
    assert sorted(utterance for batch in batches for utterance in batch) == list(range(len(lengths)))
    assert all(batches)
    for batch in batches:
        padded = len(batch) * int(samples[batch].max()) / SAMPLE_RATE
        assert padded <= seconds or len(batch) == 1


def test_batches_are_full_and_the_longest_comes_first() -> None:
    lengths = np.array([2, 5, 1, 3, 3, 2], dtype=np.int64) * SAMPLE_RATE
    assert cut(lengths, 6.0) == [[1], [3, 4], [0, 5, 2]]
    assert cut(lengths, 0.5) == [[1], [3], [4], [0], [5], [2]]


@dataclass(frozen=True)
class Pretended(World):
    """One rank after another in one process: each keeps what it found, and hears what was found so far."""

    gathered: list[Any]

    def gather(self, value: Any) -> list[Any]:
        self.gathered.append(value)
        found = {utterance for part in self.gathered for utterance in part}
        return [*self.gathered, dict.fromkeys(set(range(40)) - found, ("", ""))]


@dataclass(frozen=True)
class Parts:
    model: CtcModel
    collection: Collection
    reader: ExampleReader
    tokenizer: Tokenizer

    def heard(self, world: World = LONE, seconds: float = 120.0) -> list[Hypothesis]:
        return hypotheses(self.model, self.collection, self.reader, self.tokenizer, world, seconds)


@pytest.fixture(scope="module")
def parts(dataset: Path) -> Iterator[Parts]:
    """A model that has learnt nothing, but says something."""
    whole = Collection.open([SourceSettings(dataset=str(dataset))])
    collection = whole.only(np.arange(len(whole)) < 40)
    tokenizer, _ = Tokenizer.train([whole.text(n) for n in range(len(whole))], TokenizerSettings(pieces=16))
    torch.manual_seed(1)
    encoder = ConvolutionalSettings(width=16, blocks=1, kernel=3)
    model = ModelSettings(encoder=encoder).build(tokenizer.size)
    with torch.no_grad():
        model.output.weight.mul_(50)
    with ExampleReader(collection, tokenizer, 0, None) as reader:
        yield Parts(model, collection, reader, tokenizer)


def test_every_utterance_has_a_hypothesis_in_the_collections_order(parts: Parts) -> None:
    found = parts.heard()
    assert [pair.id for pair in found] == [parts.collection.id(n) for n in range(40)]
    assert [pair.reference for pair in found] == [parts.collection.text(n) for n in range(40)]
    assert sum(bool(pair.text) for pair in found) > 20
    assert len({pair.text for pair in found}) > 2
    assert not any(pair.problem for pair in found)


def test_neither_batch_nor_number_of_processes_changes_a_hypothesis(parts: Parts) -> None:
    found = parts.heard()
    assert parts.heard(seconds=0.1) == found
    for size in (2, 3, 50):
        gathered: list[dict[int, Any]] = []
        for rank in range(size):
            last = parts.heard(Pretended(rank, size, 0, 1, torch.device("cpu"), gathered), seconds=8)
        assert last == found
        assert sorted(utterance for part in gathered for utterance in part) == list(range(40))


def test_unusable_audio_counts_as_nothing_heard(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, real = parts.heard(), parts.reader.example

    def example(utterance: int, epoch: int) -> object:
        if utterance in {3, 7}:
            raise AudioError("unreadable", "made so by this test")
        return real(utterance, epoch)

    monkeypatch.setattr(parts.reader, "example", example)
    for seconds in (0.1, 120):
        found = parts.heard(seconds=seconds)
        assert found[3] == replace(whole[3], text="", problem="made so by this test")
        assert [pair for n, pair in enumerate(found) if n not in {3, 7}] == [
            pair for n, pair in enumerate(whole) if n not in {3, 7}
        ]
        assert rates(found)["not_recognised"] == 2
        assert rates(found)["utterances"] == 40
    assert f"utterance {whole[3].id} counts as not recognised: made so by this test" in capsys.readouterr().err


def test_the_model_is_left_as_it_was(parts: Parts) -> None:
    before = {name: value.clone() for name, value in parts.model.state_dict().items()}
    for mode in (True, False):
        parts.model.train(mode)
        parts.heard()
        assert parts.model.training is mode
    assert all(torch.equal(value, before[name]) for name, value in parts.model.state_dict().items())


def test_one_waveform_is_heard_as_in_an_evaluation(parts: Parts) -> None:
    parts.model.eval()
    found = parts.heard()
    for utterance in (0, 5, 39):
        tokens = recognised(parts.model, parts.reader.example(utterance, 0).waveform, LONE)
        assert parts.tokenizer.normalise(parts.tokenizer.decode(tokens)) == found[utterance].text
    assert recognised(parts.model, np.zeros(100, dtype=np.int16), LONE) == []
