"""Plan → batches, made ahead of time in threads: reading and decoding release the interpreter's lock.

    EpochPlans.at(step) → this rank's places → ExampleReader (threads) → collate → StepWork, in order

The position is the plan step alone: a loader that starts at step n gives what one that has come to step n gives.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from allears.errors import AudioError
from allears.loading.collate import collate
from allears.settings import Settings
from allears.types import Batch, Example, Rejection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from allears.loading.epochs import EpochPlans, Planned
    from allears.loading.example import ExampleReader


class LoaderSettings(Settings):
    """How batches are made ahead.

    Attributes:
        workers: threads of each process; 0 makes batches only when they are asked for.
        prefetch_steps: how many steps are made ahead.
    """

    workers: int = Field(default=1, ge=0, le=256)
    prefetch_steps: int = Field(default=4, ge=1, le=1000)


@dataclass(frozen=True, slots=True)
class StepWork:
    """One rank's part of a step.

    Attributes:
        planned: what the plan says of the whole step.
        places: which micro-batches of the step these are.
        batches: one for each place; None where nothing is to be run.
        rejected: place → its planned utterances that cannot be used.
    """

    planned: Planned
    places: range
    batches: list[Batch | None]
    rejected: dict[int, list[Rejection]]

    def emptied(self, places: AbstractSet[int], reasons: dict[int, list[Rejection]]) -> StepWork:
        """The same without the batches at ``places``, whose utterances are rejected for ``reasons``."""
        batches = [None if place in places else batch for place, batch in zip(self.places, self.batches, strict=True)]
        rejected = {**self.rejected}
        for place in places:
            if place in self.places:
                rejected[place] = [*rejected.get(place, []), *reasons.get(place, [])]
        return StepWork(self.planned, self.places, batches, rejected)


class Loader:
    """Iterates over the `StepWork` of one rank from step ``start`` to before ``stop``.

    Args:
        plans: the plan.
        reader: makes examples.
        places: this rank's places in each step.
        start: first plan step.
        stop: plan step to end before.
        settings: threads and prefetching.
        pin: whether batches are put in page-locked memory.
    """

    def __init__(
        self,
        plans: EpochPlans,
        reader: ExampleReader,
        places: range,
        start: int,
        stop: int,
        settings: LoaderSettings,
        pin: bool = False,
    ) -> None:
        self._plans = plans
        self._reader = reader
        self._places = places
        self._range = range(start, stop)
        self._settings = settings
        self._pin = pin

    def __iter__(self) -> Iterator[StepWork]:
        if self._settings.workers == 0:
            for step in self._range:
                planned, members = self._members(step)
                yield self._work(planned, [self._micro_batch(names, planned.epoch) for names in members])
            return
        with ThreadPoolExecutor(self._settings.workers, thread_name_prefix="loader") as pool:
            ahead: deque[tuple[Planned, list[Future[tuple[Batch | None, list[Rejection]]]]]] = deque()
            try:
                for step in self._range:
                    planned, members = self._members(step)
                    ahead.append((planned, [pool.submit(self._micro_batch, names, planned.epoch) for names in members]))
                    if len(ahead) > self._settings.prefetch_steps:
                        first, futures = ahead.popleft()
                        yield self._work(first, [future.result() for future in futures])
                while ahead:
                    first, futures = ahead.popleft()
                    yield self._work(first, [future.result() for future in futures])
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def only(self, step: int, place: int) -> StepWork:
        """One micro-batch of a step, made now, whoever's it is."""
        plan, epoch, inside = self._plans.at(step)
        batch, _ = self._micro_batch(plan.micro_batch(inside, place).tolist(), epoch)
        return StepWork(self._plans.planned(step), range(place, place + 1), [batch], {})

    def without(self, work: StepWork, utterances: AbstractSet[int]) -> StepWork:
        """The same work with the batches that hold some of ``utterances`` made anew without them."""
        if not any(batch and utterances & set(batch.utterances) for batch in work.batches):
            return work
        planned, members = self._members(work.planned.step)
        made = [self._micro_batch(names, planned.epoch, utterances) for names in members]
        return self._work(planned, made)

    def _members(self, step: int) -> tuple[Planned, list[list[int]]]:
        """Utterances of each of this rank's places; the plan for half an epoch later is begun."""
        self._plans.begin(min(step + self._plans.steps_per_epoch // 2, self._range[-1]))
        plan, _, inside = self._plans.at(step)
        return self._plans.planned(step), [plan.micro_batch(inside, place).tolist() for place in self._places]

    def _micro_batch(
        self, utterances: list[int], epoch: int, without: AbstractSet[int] = frozenset()
    ) -> tuple[Batch | None, list[Rejection]]:
        examples: list[Example] = []
        rejected: list[Rejection] = []
        lengths = self._plans.lengths(np.array(utterances, dtype=np.int32), epoch).tolist()
        waveforms = np.empty((len(utterances), max(lengths, default=0)), dtype=np.int16)
        for utterance, length in zip(utterances, lengths, strict=True):
            if utterance in without:
                rejected.append(Rejection(self._reader.id(utterance), "quarantined", "it is in quarantine."))
                continue
            row = waveforms[len(examples)]
            try:
                examples.append(self._reader.example(utterance, epoch, row[:length]))
            except AudioError as error:
                rejected.append(Rejection(self._reader.id(utterance), error.reason, str(error)))
            else:
                row[length:] = 0
        self._plans.forget()
        if not examples:
            return None, rejected
        longest = max(len(example.waveform) for example in examples)
        batch = collate(examples, np.ascontiguousarray(waveforms[: len(examples), :longest]))
        return (batch.pinned() if self._pin else batch), rejected

    def _work(self, planned: Planned, made: list[tuple[Batch | None, list[Rejection]]]) -> StepWork:
        rejected = {place: found for place, (_, found) in zip(self._places, made, strict=True) if found}
        return StepWork(planned, self._places, [batch for batch, _ in made], rejected)
