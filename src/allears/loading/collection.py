"""What a training (or an evaluation) uses: utterances of one or more datasets, numbered one after another."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allears import seeding
from allears.files import digest
from allears.loading.plan import blocks
from allears.manifest.index import Index, chosen, forget, taken
from allears.settings import Settings
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from allears.manifest.index import Rows

MOST_HELD_OUT = 500
SHARE_HELD_OUT = 0.01


class SourceSettings(Settings):
    """A part of a prepared dataset.

    Attributes:
        dataset: its folder.
        split: the part; none means all of it.
    """

    dataset: str
    split: str | None = None

    def open(self) -> tuple[Index, Rows]:
        """The dataset's index and the rows of this part.

        Raises:
            DatasetError: there is no such dataset or split.
        """
        index = Index.open(Path(self.dataset))
        return index, index.rows(self.split)


class Column:
    """Numbers of the utterances of a collection; they stay where they lie until some are asked for.

    Args:
        parts: of each part of the collection, a column of its index [rows, …], and which rows the part holds.
    """

    def __init__(self, parts: Sequence[tuple[NDArray[Any], Rows]]) -> None:
        self._parts = parts
        self._ends = _ends(parts)

    def __getitem__(self, utterances: slice | NDArray[Any]) -> NDArray[Any]:
        """The values [n, …] of a stretch of utterances, not copied where they lie in one, or of single ones [n]."""
        if isinstance(utterances, slice):
            return self._stretch(*utterances.indices(int(self._ends[-1]))[:2])
        if len(self._parts) == 1:
            return self._single(0, utterances)
        homes = np.searchsorted(self._ends[1:], utterances, side="right")
        values = np.empty((len(utterances), *self._parts[0][0].shape[1:]), dtype=self._parts[0][0].dtype)
        for home in np.unique(homes):
            at = homes == home
            values[at] = self._single(home, utterances[at] - self._ends[home])
        return values

    def forget(self) -> None:
        """Give back the memory that the values which were asked for have come to take."""
        for column, _ in self._parts:
            forget(column)

    def _single(self, part: int, inside: NDArray[Any]) -> NDArray[Any]:
        column, rows = self._parts[part]
        found: NDArray[Any] = column[inside + rows.start if isinstance(rows, range) else rows[inside]]
        return found

    def _stretch(self, first: int, last: int) -> NDArray[Any]:
        found = []
        for (column, rows), begin in zip(self._parts, self._ends.tolist(), strict=False):
            some = rows[max(first - begin, 0) : max(last - begin, 0)]
            if len(some):
                found.append(taken(column, some))
        if not found:
            return self._parts[0][0][:0] if self._parts else np.zeros(0, dtype=np.int64)
        return found[0] if len(found) == 1 else np.concatenate(found)


def _ends(parts: Sequence[tuple[Any, Rows]]) -> NDArray[np.int64]:
    """The number of the first utterance of each part, and how many there are [parts + 1]."""
    return np.cumsum([0, *(len(rows) for _, rows in parts)], dtype=np.int64)


class Collection:
    """Utterances numbered from 0 over all sources."""

    def __init__(self, parts: Sequence[tuple[Index, Rows]]) -> None:
        self.parts = [(index, rows) for index, rows in parts if len(rows)]
        self._ends = _ends(self.parts)

    @classmethod
    def open(cls, sources: Sequence[SourceSettings]) -> Self:
        """Open the sources of a config."""
        return cls([source.open() for source in sources])

    def column(self, name: str) -> Column:
        """A column of the indexes, by its name there, such as ``samples`` or ``keys``."""
        return Column([(getattr(index, name), rows) for index, rows in self.parts])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Samples at 16 kHz [n], not kept."""
        return self.column("samples")[:]

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The utterances' keys for randomness [n], not kept."""
        return self.column("keys")[:]

    @cached_property
    def seconds(self) -> float:
        """Audio in all."""
        lengths = self.column("samples")
        total = 0
        for block in blocks(len(self)):
            total += int(lengths[block].sum())
            lengths.forget()
        return total / SAMPLE_RATE

    @cached_property
    def digest(self) -> str:
        """SHA-256 of which utterances these are, in this order."""
        words = ((index.digest, np.asarray(rows, dtype="<i8").data) for index, rows in self.parts)
        return digest(*(word for pair in words for word in pair))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def place(self, utterance: int) -> tuple[int, int]:
        """Which part holds an utterance, and at which row of its index."""
        part = int(np.searchsorted(self._ends[1:], utterance, side="right"))
        return part, int(self.parts[part][1][utterance - int(self._ends[part])])

    def id(self, utterance: int) -> str:
        """The utterance's id in its dataset."""
        part, row = self.place(utterance)
        return self.parts[part][0].id(row)

    def text(self, utterance: int) -> str:
        """Its transcript, as it came."""
        part, row = self.place(utterance)
        return self.parts[part][0].text(row)

    def speaker(self, utterance: int) -> str:
        """Its speaker; empty when unknown."""
        part, row = self.place(utterance)
        return self.parts[part][0].speaker(row)

    def forget(self) -> None:
        """Give back the memory that the indexes have come to take."""
        for index, _ in self.parts:
            index.forget()

    def languages(self) -> list[str]:
        """The languages that occur."""
        return sorted(
            {index.languages[c] for index, rows in self.parts for c in np.unique(taken(index.language_codes, rows))}
        )

    def only(self, where: NDArray[np.bool_]) -> Collection:
        """The utterances at which ``where`` [n] is true."""
        shares = np.split(where, self._ends[1:-1])
        return Collection(
            [(index, chosen(rows, share)) for (index, rows), share in zip(self.parts, shares, strict=True)]
        )

    def sample(self, hours: float, purpose: str) -> NDArray[np.int64]:
        """Utterances of at most ``hours`` in all, at least one if there is any, in an order given by their keys.

        The choice for a ``purpose`` is the same everywhere, and hardly changes when a corpus grows.
        """
        order = np.argsort(seeding.hashed(self.keys, seeding.key(purpose)), kind="stable")
        lengths = self.column("samples")[order]
        enough = np.searchsorted(np.cumsum(lengths), hours * 3600 * SAMPLE_RATE, side="right")
        return order[: max(int(enough), 1)]

    def at_most(self, hours: float, purpose: str) -> Collection:
        """The utterances of `sample`, in their own order."""
        where = np.zeros(len(self), dtype=bool)
        where[self.sample(hours, purpose)] = True
        return self.only(where)

    def hold_out(self) -> tuple[Collection, Collection, str]:
        """Split off 1 % or 500 utterances for validation: (the rest, the held-out ones, what was done, in words).

        Whole speakers are taken, in an order given by a hash of their names, so that the choice is the same
        everywhere and stays when a corpus grows; where no speaker is small enough, single utterances are.
        """
        wanted = min(MOST_HELD_OUT, int(len(self) * SHARE_HELD_OUT))
        if wanted < 1:
            return self, Collection([]), f"no utterances are held out for validation: there are only {len(self):,}."
        speakers: Counter[str] = Counter()
        for index, rows in self.parts:
            codes, counts = np.unique(taken(index.speaker_codes, rows), return_counts=True)
            speakers.update({index.speakers[code]: count for code, count in zip(codes, counts.tolist(), strict=True)})
        del speakers[""]
        names: set[str] = set()
        total = 0
        for name in sorted(speakers, key=lambda name: seeding.key(f"hold out {name}")):
            # A whole speaker may overshoot what is wanted a little, but never by half as much again.
            if total + speakers[name] <= 1.5 * wanted:
                names.add(name)
                total += speakers[name]
            if total >= wanted:
                break
        whose = f"all of {len(names)} speakers"
        if names:
            held = np.concatenate(
                [
                    np.array([name in names for name in index.speakers])[taken(index.speaker_codes, rows)]
                    for index, rows in self.parts
                ]
            )
        else:
            draws = seeding.hashed(self.keys, seeding.key("hold out"))
            smallest = np.flatnonzero(draws <= np.partition(draws, wanted - 1)[wanted - 1])
            held = np.zeros(len(self), dtype=bool)
            held[smallest[np.argsort(draws[smallest], kind="stable")[:wanted]]] = True
            whose = "of speakers who are also trained on"
        self.forget()
        said = f"{int(held.sum()):,} utterances, {whose}, are held out; validation.NAME.dataset names others."
        return self.only(~held), self.only(held), said
