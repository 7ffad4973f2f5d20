from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
import torch

from allears.errors import DatasetError
from allears.layers.augment import SpecAugmentSettings
from allears.loading.augment import AugmentSettings
from allears.loading.collection import Collection, Column, SourceSettings
from allears.loading.epochs import EpochPlans
from allears.loading.example import ExampleReader
from allears.loading.loader import Loader, LoaderSettings, StepWork
from allears.loading.plan import EpochPlan, PlanSettings, plan_epoch, subtrees
from allears.loading.tokens import token_counts
from allears.manifest.index import Index
from allears.shards.prepare import Corpus, prepare
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.types import SAMPLE_RATE, Utterance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.types import Example

    Samples = NDArray[np.int16]

PLACES = 4


@pytest.fixture(scope="module", params=[(), (0.9, 1.0, 1.1)], ids=["as it is", "at three speeds"])
def parts(dataset: Path, request: pytest.FixtureRequest) -> Iterator[tuple[EpochPlans, ExampleReader, Collection]]:
    augment = AugmentSettings(speed=request.param)
    collection = Collection.open([SourceSettings(dataset=str(dataset))])
    tokenizer, _ = Tokenizer.train([collection.text(n) for n in range(len(collection))], TokenizerSettings(pieces=16))
    counts = token_counts(collection, tokenizer)
    plans = EpochPlans(collection, counts, PlanSettings(step_seconds=24, micro_batches=PLACES), 3, augment)
    with ExampleReader(collection, tokenizer, 3, SpecAugmentSettings(), augment) as reader:
        yield plans, reader, collection


def same(one: StepWork, other: StepWork) -> bool:
    return one.planned == other.planned and all(
        (a is None and b is None)
        or (
            a is not None
            and b is not None
            and a.utterances == b.utterances
            and all(torch.equal(x, y) for x, y in zip(a.tensors(), b.tensors(), strict=True))
        )
        for a, b in zip(one.batches, other.batches, strict=True)
    )


def work(
    parts: tuple[EpochPlans, ExampleReader, Collection], places: range, start: int, stop: int, workers: int
) -> list[StepWork]:
    plans, reader, _ = parts
    return list(Loader(plans, reader, places, start, stop, LoaderSettings(workers=workers, prefetch_steps=3)))


@pytest.mark.case("espnet docs")
@pytest.mark.parametrize("workers", [0, 1, 4])
def test_starting_at_a_step_gives_what_coming_to_it_gives(
    parts: tuple[EpochPlans, ExampleReader, Collection], workers: int
) -> None:
    stop = 2 * parts[0].steps_per_epoch + 1
    whole = work(parts, range(PLACES), 0, stop, 0)
    for start in (0, 1, parts[0].steps_per_epoch, stop - 1):
        rest = work(parts, range(PLACES), start, stop, workers)
        assert [item.planned.step for item in rest] == list(range(start, stop))
        assert all(same(a, b) for a, b in zip(rest, whole[start:], strict=True))


@pytest.mark.case("espnet docs")
def test_going_on_among_a_million_utterances_plans_one_epoch_and_reads_one_step(
    parts: tuple[EpochPlans, ExampleReader, Collection],
    of_lengths: Callable[..., Collection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In mid-epoch and after many epochs as at the start: one epoch is planned, just what is asked for is read."""
    draw = np.random.default_rng(0)
    lengths = (np.clip(np.exp(draw.normal(np.log(9.0), 0.6, 1_000_000)), 0.5, 30.0) * SAMPLE_RATE).astype(np.int64)
    _, reader, collection = parts
    read: list[int] = []

    def example(utterance: int, epoch: int, into: Samples) -> Example:
        read.append(utterance)
        into[:] = 0
        return replace(ExampleReader.example(reader, utterance % len(collection), epoch), waveform=into)

    monkeypatch.setattr(reader, "example", example)
    planned: list[int] = []

    def plan(*given: Any) -> EpochPlan:
        planned.append(given[3])
        return plan_epoch(*given)

    monkeypatch.setattr("allears.loading.epochs.plan_epoch", plan)
    counts = Column([(np.full((len(lengths), 3), 30, np.int32), range(len(lengths)))])
    for start in (0, 20_000, 123_456):
        plans = EpochPlans(of_lengths(lengths), counts, PlanSettings(step_seconds=480), 3)
        read.clear()
        planned.clear()
        item = next(iter(Loader(plans, reader, range(2), start, start + 1, LoaderSettings(workers=0))))
        assert item.planned.step == start
        assert planned == [item.planned.epoch] == [start // plans.steps_per_epoch]
        assert len(read) == sum(len(batch.utterances) for batch in item.batches if batch)
    assert start // plans.steps_per_epoch > 4


@pytest.mark.case("lhotse #1442")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_share_each_step_without_gap_or_overlap(
    parts: tuple[EpochPlans, ExampleReader, Collection], size: int
) -> None:
    stop = parts[0].steps_per_epoch
    whole = work(parts, range(PLACES), 0, stop, 0)
    ranks = [work(parts, places, 0, stop, 1) for places in subtrees(PLACES, size)]
    used = []
    for step in range(stop):
        together = [batch for rank in ranks for batch in rank[step].batches]
        alone = whole[step].batches
        assert [b and b.utterances for b in together] == [b and b.utterances for b in alone]
        used += [n for batch in together if batch for n in batch.utterances]
    assert sorted(used) == list(range(len(parts[2])))


@pytest.mark.case("lhotse #1442")
def test_masks_change_with_the_epoch_and_not_with_the_batch(
    parts: tuple[EpochPlans, ExampleReader, Collection],
) -> None:
    _, reader, _ = parts
    first, again, later = reader.example(5, 0), reader.example(5, 0), reader.example(5, 1)
    assert np.array_equal(first.time_masks, again.time_masks)
    assert not np.array_equal(first.time_masks, later.time_masks)
    assert not np.array_equal(first.time_masks, reader.example(6, 0).time_masks)


def test_planned_counts_are_those_of_the_batches(parts: tuple[EpochPlans, ExampleReader, Collection]) -> None:
    for item in work(parts, range(PLACES), 0, 2 * parts[0].steps_per_epoch, 0):
        batches = [batch for batch in item.batches if batch is not None]
        assert item.planned.tokens == sum(int(batch.token_lengths.sum()) for batch in batches)
        assert item.planned.utterances == sum(len(batch.utterances) for batch in batches)
        samples = sum(int(batch.waveform_lengths.sum()) for batch in batches)
        assert item.planned.audio_seconds == pytest.approx(samples / 16_000)
        padded = sum(batch.waveforms.numel() for batch in batches)
        assert item.planned.padding == pytest.approx(1 - samples / padded)


def test_an_unreadable_utterance_keeps_its_place_and_is_named(
    parts: tuple[EpochPlans, ExampleReader, Collection], monkeypatch: pytest.MonkeyPatch
) -> None:
    from allears.errors import AudioError

    plans, reader, collection = parts
    broken = int(plans.at(0)[0].micro_batch(0, 1)[0])
    real = reader.example

    def example(utterance: int, epoch: int, into: Samples) -> object:
        if utterance == broken:
            raise AudioError("unreadable", "made so by this test")
        return real(utterance, epoch, into)

    monkeypatch.setattr(reader, "example", example)
    item = next(iter(Loader(plans, reader, range(PLACES), 0, 1, LoaderSettings())))
    assert [rejection.id for rejection in item.rejected[1]] == [collection.id(broken)]
    assert broken not in [n for batch in item.batches if batch for n in batch.utterances]


def test_a_failing_shard_ends_the_training_instead_of_shrinking_it(
    parts: tuple[EpochPlans, ExampleReader, Collection], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, reader, _ = parts

    def example(utterance: int, epoch: int, _: Samples) -> object:
        raise DatasetError(f"shard of {utterance} in epoch {epoch} is gone")

    monkeypatch.setattr(reader, "example", example)
    with pytest.raises(DatasetError, match="is gone"):
        list(Loader(plans, reader, range(PLACES), 0, 2, LoaderSettings(workers=2)))


@pytest.mark.parametrize("encoding", ["pcm16", "flac"])
@pytest.mark.parametrize("speed", [(), (0.9,)])
def test_a_batch_is_what_its_examples_are(noises: Callable[..., Path], encoding: str, speed: tuple[float, ...]) -> None:
    """Waveforms are read or decoded to where they lie in the batch; padding is zero."""
    plans, reader, _ = opened(noises(encoding), speed)
    for item in Loader(plans, reader, range(PLACES), 0, plans.steps_per_epoch, LoaderSettings()):
        for batch in filter(None, item.batches):
            for n, utterance in enumerate(batch.utterances):
                alone, length = reader.example(utterance, item.planned.epoch).waveform, int(batch.waveform_lengths[n])
                assert np.array_equal(batch.waveforms[n, :length].numpy(), alone)
                assert not batch.waveforms[n, length:].any()
            assert batch.waveforms.shape[1] == batch.waveform_lengths.max()


@pytest.mark.parametrize("speed", [(), (0.9,)])
def test_a_flipped_bit_in_flac_is_found_and_its_utterance_named(
    noises: Callable[..., Path], speed: tuple[float, ...]
) -> None:
    dataset = noises("flac")
    index = Index.open(dataset)
    guilty = int(np.argmax(index.samples))  # what is left of its batch is padded to the next longest
    with (dataset / index.shards[int(index.shard[guilty])].name).open("r+b") as shard:
        shard.seek(int(index.offset[guilty] + index.size[guilty] // 2))
        byte = shard.read(1)
        shard.seek(-1, 1)
        shard.write(bytes([byte[0] ^ 16]))
    plans, reader, _ = opened(dataset, speed)
    items = list(Loader(plans, reader, range(PLACES), 0, plans.steps_per_epoch, LoaderSettings()))
    (rejection,) = [one for item in items for found in item.rejected.values() for one in found]
    assert (rejection.id, rejection.reason) == (index.id(guilty), "unreadable")
    assert "is damaged in its shard" in rejection.detail
    batches = [batch for item in items for batch in item.batches if batch]
    assert sorted(n for batch in batches for n in batch.utterances) == sorted(set(range(len(index))) - {guilty})
    assert all(batch.waveforms.shape[1] == batch.waveform_lengths.max() for batch in batches)


@pytest.fixture
def noises(tmp_path: Path) -> Callable[..., Path]:
    """Makes a dataset of forty noises in an encoding."""

    def make(encoding: Any) -> Path:
        utterances = []
        for n in range(40):
            samples = np.random.default_rng(n).normal(0, 2000, 8000 + 200 * n).astype(np.int16)
            soundfile.write(tmp_path / f"{n}.wav", samples, SAMPLE_RATE)
            utterances.append(Utterance(f"noise {n}", str(tmp_path / f"{n}.wav"), "a noise"))
        prepare(Corpus(tmp_path, "pairs", utterances, []), tmp_path / "made", encoding=encoding, processes=1)
        return tmp_path / "made"

    return make


def opened(dataset: Path, speed: tuple[float, ...]) -> tuple[EpochPlans, ExampleReader, Collection]:
    """What a loader needs."""
    augment = AugmentSettings(speed=speed)
    collection = Collection.open([SourceSettings(dataset=str(dataset))])
    tokenizer, _ = Tokenizer.train([collection.text(0)], TokenizerSettings(kind="characters", minimum_count=1))
    counts = token_counts(collection, tokenizer)
    plans = EpochPlans(collection, counts, PlanSettings(step_seconds=12, micro_batches=PLACES), 3, augment)
    return plans, ExampleReader(collection, tokenizer, 3, None, augment), collection
