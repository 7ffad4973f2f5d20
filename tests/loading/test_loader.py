from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
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
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from allears.types import Example

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

    def example(utterance: int, epoch: int) -> Example:
        read.append(utterance)
        return ExampleReader.example(reader, utterance % len(collection), epoch)

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

    def example(utterance: int, epoch: int) -> object:
        if utterance == broken:
            raise AudioError("unreadable", "made so by this test")
        return real(utterance, epoch)

    monkeypatch.setattr(reader, "example", example)
    item = next(iter(Loader(plans, reader, range(PLACES), 0, 1, LoaderSettings())))
    assert [rejection.id for rejection in item.rejected[1]] == [collection.id(broken)]
    assert broken not in [n for batch in item.batches if batch for n in batch.utterances]


def test_a_failing_shard_ends_the_training_instead_of_shrinking_it(
    parts: tuple[EpochPlans, ExampleReader, Collection], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, reader, _ = parts

    def example(utterance: int, epoch: int) -> object:
        raise DatasetError(f"shard of {utterance} in epoch {epoch} is gone")

    monkeypatch.setattr(reader, "example", example)
    with pytest.raises(DatasetError, match="is gone"):
        list(Loader(plans, reader, range(PLACES), 0, 2, LoaderSettings(workers=2)))
