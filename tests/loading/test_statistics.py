from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest
import torch

from allears.audio.decode import decode
from allears.errors import AudioError, PlanError
from allears.layers.features import FeatureSettings
from allears.loading.collection import Collection, SourceSettings
from allears.loading.statistics import feature_statistics
from allears.shards.read import ShardReader
from allears.types import Example
from allears.world import World

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
CPU = torch.device("cpu")
ALONE = World(0, 1, 0, 1, CPU)
FRONTEND = FeatureSettings(normalisation="global").build()


class Reader:
    """Reads waveforms; some cannot be read."""

    def __init__(self, collection: Collection, broken: set[int]) -> None:
        self.collection = collection
        self.broken = broken
        self.shards = [ShardReader(index) for index, _ in collection.parts]
        self.heard: list[int] = []

    def example(self, utterance: int, epoch: int) -> Example:
        assert epoch == 0
        if utterance in self.broken:
            raise AudioError("unreadable", "It is broken.")
        self.heard.append(utterance)
        part, row = self.collection.place(utterance)
        nothing = np.zeros((0, 2), dtype=np.float32)
        waveform = decode(self.shards[part].segment(row))
        return Example(utterance, waveform, np.zeros(0, dtype=np.int32), nothing, nothing)


@dataclass
class Meeting:
    """Where threads that pretend to be processes exchange values."""

    size: int
    values: dict[int, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size)


@dataclass(frozen=True)
class Member(World):
    """One of several threads that pretend to be processes."""

    meeting: Meeting

    def gather(self, value: T) -> list[T]:
        self.meeting.values[self.rank] = value
        self.meeting.barrier.wait(timeout=60)
        return [self.meeting.values[rank] for rank in range(self.size)]  # type: ignore[misc]


@pytest.fixture(scope="module")
def collection(dataset: Path) -> Collection:
    whole = Collection.open([SourceSettings(dataset=str(dataset))])
    return whole.only(np.arange(len(whole)) < 60)


def test_statistics_are_those_of_all_frames(collection: Collection) -> None:
    broken = {3, 4, 17}
    reader = Reader(collection, broken)
    mean, deviation = feature_statistics(collection, reader, FRONTEND, ALONE)
    assert sorted(reader.heard) == sorted(set(range(60)) - broken)
    frames = []
    for utterance in sorted(reader.heard):
        waveform = torch.from_numpy(reader.example(utterance, 0).waveform)
        frames.append(FRONTEND.extract(waveform[None], torch.tensor([len(waveform)]))[0][0].double())
    whole = torch.cat(frames)
    assert mean.dtype == deviation.dtype == torch.float32
    torch.testing.assert_close(mean.double(), whole.mean(dim=0), atol=0.51 * 2**-10, rtol=0)
    torch.testing.assert_close(deviation.double(), whole.std(dim=0, correction=0), atol=0.51 * 2**-10, rtol=0)
    assert deviation.min() > 0.1


def test_statistics_are_the_same_bits_in_any_world_and_with_any_number_of_threads(collection: Collection) -> None:
    wanted = torch.stack(feature_statistics(collection, Reader(collection, {5}), FRONTEND, ALONE))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = torch.stack(feature_statistics(collection, Reader(collection, {5}), FRONTEND, ALONE))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(again, wanted)
    for size in (2, 3, 11):  # 60 utterances are 8 chunks: some of 11 have nothing to do
        meeting = Meeting(size)
        readers = [Reader(collection, {5}) for _ in range(size)]

        def work(rank: int, meeting: Meeting = meeting, readers: list[Reader] = readers) -> torch.Tensor:
            member = Member(rank, meeting.size, rank, meeting.size, CPU, meeting)
            return torch.stack(feature_statistics(collection, readers[rank], FRONTEND, member))

        with ThreadPoolExecutor(size) as pool:
            for found in pool.map(work, range(size)):
                assert torch.equal(found, wanted)
        assert sorted(utterance for reader in readers for utterance in reader.heard) == sorted(set(range(60)) - {5})


def test_some_hours_are_enough_and_the_choice_stays_when_a_corpus_grows(collection: Collection) -> None:
    hours = float(collection.lengths.sum()) / 16000 / 3600 / 4
    reader = Reader(collection, set())
    feature_statistics(collection, reader, FRONTEND, ALONE, hours)
    assert 0.15 * 60 < len(reader.heard) < 0.35 * 60
    assert collection.lengths[reader.heard].sum() <= hours * 3600 * 16000
    less = collection.only(np.arange(60) != reader.heard[0])
    fewer = Reader(less, set())
    feature_statistics(less, fewer, FRONTEND, ALONE, hours)
    chosen = {collection.id(utterance) for utterance in reader.heard[1:]}
    assert chosen <= {less.id(utterance) for utterance in fewer.heard}


def test_at_least_one_utterance_is_measured(collection: Collection) -> None:
    reader = Reader(collection, set())
    feature_statistics(collection, reader, FRONTEND, ALONE, hours=1e-9)
    assert len(reader.heard) == 1


def test_audio_of_which_nothing_can_be_used_is_an_error(collection: Collection) -> None:
    with pytest.raises(PlanError, match="none of 60 utterances"):
        feature_statistics(collection, Reader(collection, set(range(60))), FRONTEND, ALONE)
