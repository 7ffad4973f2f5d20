"""The plan of every step of a training, epoch after epoch; made once on a machine and shared by its processes."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from allears.errors import DataError
from allears.files import digest, locked, removed, written_folder
from allears.loading.augment import AugmentSettings
from allears.loading.kept import KeptColumn
from allears.loading.plan import EpochPlan, PlanSettings, blocks, plan_epoch, reduced, steps_per_epoch
from allears.reporting import say
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from allears.loading.collection import Collection, Column
    from allears.loading.plan import Numbers

    Figures = NDArray[np.int64]

_DIGEST = "digest"
_ARRAYS = ("utterances", "offsets", "samples", "longest", "tokens", "most_tokens")


@dataclass(frozen=True, slots=True)
class Planned:
    """What the plan says of one step, the same on all ranks."""

    step: int
    epoch: int
    utterances: int
    tokens: int
    audio_seconds: float
    padding: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """The plan of one epoch, and what each of its micro-batches holds, each int64 [steps × micro_batches].

    All are arrays in this process's memory, or columns of the machine's shared files.

    Attributes:
        plan: which utterances.
        samples: their audio.
        longest: samples of the longest, to which all are padded.
        tokens: their target tokens.
        most_tokens: of one of them.
    """

    plan: EpochPlan
    samples: Numbers
    longest: Numbers
    tokens: Numbers
    most_tokens: Numbers


class EpochPlans:
    """The plan of every step of a training over usable utterances.

    Args:
        collection: the utterances.
        counts: target tokens of each, in the first column [n, …].
        settings: what a step is.
        seed: of the run.
        augment: what changes their lengths from epoch to epoch; none changes nothing.
        shared: folder in which the first process that needs an epoch's plan leaves it for the others of its machine;
            none makes it in this process's own memory.
    """

    def __init__(
        self,
        collection: Collection,
        counts: Column,
        settings: PlanSettings,
        seed: int,
        augment: AugmentSettings | None = None,
        shared: Path | None = None,
    ) -> None:
        self._collection = collection
        self._samples, self._keys, self._counts = collection.column("samples"), collection.column("keys"), counts
        self._settings = settings
        self._seed = seed
        self._augment = augment or AugmentSettings()
        self._augmentation = self._augment.build(seed)
        self._shared = shared
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._epochs: dict[int, Future[Epoch]] = {}
        # The same every epoch; the bound on utterances holds whatever is drawn.
        weighed = self._augmentation.longest if settings.max_utterances else self._augmentation.expected
        self.steps_per_epoch = steps_per_epoch(self._whole(lambda block: weighed(self._samples[block])), settings)

    def begin(self, step: int) -> None:
        """Plan the epoch that holds ``step``, in the background."""
        self._begun(step // self.steps_per_epoch)

    def at(self, step: int) -> tuple[EpochPlan, int, int]:
        """The plan that holds a step, its epoch, and the step's number in it."""
        number, inside = divmod(step, self.steps_per_epoch)
        return self.epoch(number).plan, number, inside

    def lengths(self, utterances: NDArray[np.int32] | slice, epoch: int) -> NDArray[np.int64]:
        """Samples [n] of ``utterances`` as they are heard in ``epoch``."""
        samples = self._samples[utterances]
        if not self._augmentation.changes_lengths:
            return samples
        return self._augmentation.lengths(samples, self._keys[utterances], epoch)

    def token_counts(self, utterances: NDArray[np.int32] | slice) -> NDArray[np.int32]:
        """Target tokens [n] of each of ``utterances``."""
        return self._counts[utterances][:, 0]

    def tokens(self, utterances: NDArray[np.int32]) -> int:
        """Target tokens of ``utterances`` [n] together."""
        return int(self.token_counts(utterances).sum())

    def planned(self, step: int) -> Planned:
        """Counts of a whole step, over all ranks."""
        number, inside = divmod(step, self.steps_per_epoch)
        epoch = self.epoch(number)
        size = self._settings.micro_batches
        here = slice(inside * size, (inside + 1) * size)
        counts = np.diff(epoch.plan.offsets[here.start : here.stop + 1])
        samples = int(epoch.samples[here].sum())
        padded = int(counts @ epoch.longest[here])
        tokens = int(epoch.tokens[here].sum())
        padding = 1.0 - samples / max(padded, 1)
        return Planned(step, number, int(counts.sum()), tokens, samples / SAMPLE_RATE, padding)

    def forget(self) -> None:
        """Give back the memory that the columns have come to take."""
        self._collection.forget()
        self._counts.forget()

    def epoch(self, number: int) -> Epoch:
        """An epoch, from 0; the call waits until it has been planned."""
        return self._begun(number).result()

    def _begun(self, number: int) -> Future[Epoch]:
        if number not in self._epochs:
            # A step that is made anew may be the last of the epoch before.
            self._epochs = {near: epoch for near, epoch in self._epochs.items() if abs(near - number) <= 1}
            self._epochs[number] = self._thread.submit(self._opened if self._shared else self._made, number)
        return self._epochs[number]

    def _made(self, number: int) -> Epoch:
        lengths = self._whole(lambda block: self.lengths(block, number))
        plan = plan_epoch(lengths, self._settings, self._seed, number, self.steps_per_epoch)

        def figures(values: NDArray[np.int32]) -> tuple[Figures, Figures]:
            arranged, offsets = values[plan.utterances[:]], plan.offsets[:]
            return reduced(np.add, arranged, offsets), reduced(np.maximum, arranged, offsets)

        samples, longest = figures(lengths)
        del lengths
        return Epoch(plan, samples, longest, *figures(self._whole(self.token_counts)))

    def _whole(self, values: Callable[[slice], NDArray[Any]]) -> NDArray[np.int32]:
        """``values`` of all utterances [n], a stretch at a time so that little of the columns is in memory at once."""
        found = np.empty(len(self._collection), dtype=np.int32)
        for block in blocks(len(found)):
            found[block] = values(block)
            self.forget()
        return found

    def _opened(self, number: int) -> Epoch:
        """The shared epoch, which the first process to come plans while the others wait."""
        place = self._place(number)
        try:
            with locked(place.parent, "planning", wait=True):
                if place.exists():
                    try:
                        return self._kept(place)
                    except (OSError, EOFError, ValueError) as error:
                        say(f"note: {place} is planned anew, for it is damaged: {error}")
                near = {self._place(other) for other in range(number - 1, number + 2)}
                for old in set(place.parent.glob("epoch-*")) - near:
                    removed(old)
                self._write(self._made(number), place)
                return self._kept(place)
        except (DataError, OSError, EOFError, ValueError) as error:
            say(f"note: this process keeps a plan of its own, for {place} cannot be used: {error}")
            return self._made(number)

    def _kept(self, place: Path) -> Epoch:
        """The epoch that lies in ``place``."""
        if (place / _DIGEST).read_text(encoding="utf-8") != _digest_of(place):
            raise ValueError("it does not hold what was written.")
        utterances, offsets, *figures = (KeptColumn(place / f"{name}.npy") for name in _ARRAYS)
        return Epoch(EpochPlan(utterances, offsets, self._settings.micro_batches), *figures)

    def _write(self, epoch: Epoch, place: Path) -> None:
        plan = epoch.plan
        arrays = (plan.utterances, plan.offsets, epoch.samples, epoch.longest, epoch.tokens, epoch.most_tokens)
        with written_folder(place) as folder:
            for name, array in zip(_ARRAYS, arrays, strict=True):
                np.save(folder / f"{name}.npy", array)
            (folder / _DIGEST).write_text(_digest_of(folder), encoding="utf-8")

    def _place(self, number: int) -> Path:
        """Where an epoch is shared, under the digest of all that its plan depends on."""
        assert self._shared is not None
        return self._shared / f"epoch-{number:06d}-{self._digest[:16]}"

    @cached_property
    def _digest(self) -> str:
        settings = (self._settings.model_dump_json(), self._augment.model_dump_json())
        return digest(self._collection.digest, *settings, str(self._seed))


def _digest_of(place: Path) -> str:
    """SHA-256 of the columns in ``place``."""
    sums = []
    for name in _ARRAYS:
        with (place / f"{name}.npy").open("rb") as file:
            sums.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digest(*sums)
