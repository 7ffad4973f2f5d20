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
from allears.evaluation.segments import LONGEST, Piece
from allears.evaluation.transcribe import (
    BatchLimits,
    Hypothesis,
    Stretch,
    Transcript,
    cut,
    decoding,
    hypotheses,
    stretches_of,
    transcribed,
)
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.types import SAMPLE_RATE
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from allears.models.ctc import CtcModel

LIMITS = BatchLimits()
LONE = World(0, 1, 0, 1, torch.device("cpu"))


@given(st.lists(st.integers(0, 20 * SAMPLE_RATE), max_size=80), st.floats(1, 100))
def test_each_utterance_is_in_one_batch_of_bounded_padded_audio(lengths: list[int], seconds: float) -> None:
    samples = np.array(lengths, dtype=np.int64)
    batches = cut(samples, BatchLimits(seconds))
    assert sorted(utterance for batch in batches for utterance in batch) == list(range(len(lengths)))
    assert all(batches)
    for batch in batches:
        padded = len(batch) * int(samples[batch].max()) / SAMPLE_RATE
        assert padded <= seconds or len(batch) == 1


def test_batches_are_full_and_the_longest_comes_first() -> None:
    lengths = np.array([2, 5, 1, 3, 3, 2], dtype=np.int64) * SAMPLE_RATE
    assert cut(lengths, BatchLimits(6.0)) == [[1], [3, 4], [0, 5, 2]]
    assert cut(lengths, BatchLimits(6.0, utterances=2)) == [[1], [3, 4], [0, 5], [2]]
    assert cut(lengths, BatchLimits(0.5)) == [[1], [3], [4], [0], [5], [2]]


@dataclass(frozen=True)
class Pretended(World):
    """One rank after another in one process: each keeps what it found, and hears what was found so far."""

    gathered: list[Any]

    def gather(self, value: Any) -> list[Any]:
        self.gathered.append(value)
        found = {utterance for part in self.gathered for utterance in part}
        return [*self.gathered, dict.fromkeys(set(range(40)) - found, Transcript(()))]


@dataclass(frozen=True)
class Parts:
    model: CtcModel
    collection: Collection
    reader: ExampleReader
    tokenizer: Tokenizer

    def heard(self, world: World = LONE, limits: BatchLimits = LIMITS) -> list[Hypothesis]:
        """Hypotheses; confidences rounded, since padding changes the last bits of a probability."""
        found = hypotheses(self.model, self.collection, self.reader, self.tokenizer, world, limits)
        return [replace(one, confidence=round(one.confidence, 4)) for one in found]


@pytest.fixture(scope="module")
def parts(dataset: Path, babble: Callable[[int], CtcModel]) -> Iterator[Parts]:
    """Forty utterances, and a model that babbles."""
    whole = Collection.open([SourceSettings(dataset=str(dataset))])
    collection = whole.only(np.arange(len(whole)) < 40)
    tokenizer, _ = Tokenizer.train([whole.text(n) for n in range(len(whole))], TokenizerSettings(pieces=16))
    with ExampleReader(collection, tokenizer, 0, None) as reader:
        yield Parts(babble(tokenizer.size), collection, reader, tokenizer)


def test_every_utterance_has_a_hypothesis_in_the_collections_order(parts: Parts) -> None:
    found = parts.heard()
    assert [pair.id for pair in found] == [parts.collection.id(n) for n in range(40)]
    assert [pair.reference for pair in found] == [parts.collection.text(n) for n in range(40)]
    assert sum(bool(pair.text) for pair in found) > 20
    assert len({pair.text for pair in found}) > 2
    assert not any(pair.problem for pair in found)


@pytest.mark.case("transformers #15107")
@pytest.mark.case("speechbrain #1582")
@pytest.mark.case("wenet #842")
def test_neither_batch_nor_number_of_processes_changes_a_hypothesis(parts: Parts) -> None:
    found = parts.heard()
    for limits in (BatchLimits(0.1), BatchLimits(utterances=1), BatchLimits(utterances=16)):
        assert parts.heard(limits=limits) == found
    for size in (2, 3, 50):
        gathered: list[dict[int, Any]] = []
        for rank in range(size):
            world = Pretended(rank, size, 0, 1, torch.device("cpu"), gathered)
            last = parts.heard(world, BatchLimits(8))
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
        found = parts.heard(limits=BatchLimits(seconds))
        assert found[3] == replace(whole[3], text="", confidence=0.0, problem="made so by this test")
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


def test_the_model_is_left_as_it_was_after_a_failure(parts: Parts) -> None:
    parts.model.train()
    with decoding(parts.model, LONE) as hear:
        assert not parts.model.training
        assert not torch.is_grad_enabled()
    with pytest.raises(ValueError, match="zero-size"), decoding(parts.model, LONE) as hear:
        hear([])
    assert parts.model.training
    assert torch.is_grad_enabled()


def test_decoding_is_outside_autocast(parts: Parts) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), decoding(parts.model, LONE):
        assert not torch.is_autocast_enabled("cpu")


def piece(samples: int, start: int = 0, level: float = 3000.0) -> Piece:
    return Piece(start, (np.random.default_rng(samples).standard_normal(samples) * level).astype(np.int16))


def test_pieces_are_heard_with_their_times(parts: Parts) -> None:
    given = [piece(16000), piece(24000, start=16000), piece(100, start=40000)]
    with decoding(parts.model, LONE) as hear:
        together = stretches_of(given, hear, parts.tokenizer, BatchLimits())
        alone = [stretches_of([one], hear, parts.tokenizer, BatchLimits())[0] for one in given]
    assert [(one.start, one.end) for one in together] == [(0.0, 1.0), (1.0, 2.5), (2.5, 2.506)]
    assert [(one.text, one.tokens) for one in together] == [(one.text, one.tokens) for one in alone]
    assert [one.confidence for one in together] == pytest.approx([one.confidence for one in alone], abs=1e-4)
    assert together[2].text == ""


@pytest.mark.case("guide B (asked.md #14)")
def test_in_digital_silence_nothing_is_said(parts: Parts) -> None:
    with decoding(parts.model, LONE) as hear:
        found = stretches_of([piece(8000, level=0), piece(16000)], hear, parts.tokenizer, BatchLimits())
        assert found[0] == Stretch(0.0, 0.5, "", 1.0, 0)
        assert found[1] == stretches_of([piece(16000)], hear, parts.tokenizer, BatchLimits())[0]
        assert stretches_of([], hear, parts.tokenizer, BatchLimits()) == []


def test_a_transcript_is_its_stretches() -> None:
    two = (Stretch(0, 1, "the cat", 0.9, 3), Stretch(1, 2, "", 0.1, 0), Stretch(2, 3, "sat", 0.5, 1))
    assert Transcript(two).text == "the cat sat"
    assert Transcript(two).confidence == pytest.approx((3 * 0.9 + 0.5) / 4)
    assert Transcript(two[1:2]).confidence == pytest.approx(0.1)
    assert (Transcript((), "gone").text, Transcript((), "gone").confidence) == ("", 0.0)


def test_a_long_utterance_is_heard_in_pieces(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    real = parts.reader.example
    long = piece(LONGEST * 2 + 5000).samples

    def example(utterance: int, epoch: int) -> object:
        return replace(real(utterance, epoch), waveform=long) if utterance == 7 else real(utterance, epoch)

    whole = parts.heard()
    monkeypatch.setattr(parts.reader, "example", example)
    found = transcribed(parts.model, parts.collection, parts.reader, parts.tokenizer, LONE, BatchLimits(40.0))
    assert len(found[7].stretches) >= 3
    assert found[7].stretches[-1].end == round(len(long) / SAMPLE_RATE, 3)
    assert [one.text for n, one in enumerate(found) if n != 7] == [one.text for n, one in enumerate(whole) if n != 7]
