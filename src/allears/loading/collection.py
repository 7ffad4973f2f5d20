"""What a training (or an evaluation) uses: utterances of one or more datasets, numbered one after another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allears import seeding
from allears.files import digest
from allears.manifest.index import Index
from allears.settings import Settings
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

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

    def open(self) -> tuple[Index, NDArray[np.int64]]:
        """The dataset's index and the rows of this part.

        Raises:
            DatasetError: there is no such dataset or split.
        """
        index = Index.open(Path(self.dataset))
        return index, index.rows(self.split)


class Collection:
    """Utterances numbered from 0 over all sources.

    Attributes:
        lengths: int64 [n], samples at 16 kHz.
        keys: uint64 [n], the utterances' keys for randomness.
        digest: SHA-256 of which utterances these are, in this order.
    """

    def __init__(self, parts: Sequence[tuple[Index, NDArray[np.int64]]]) -> None:
        self.parts = [(index, rows) for index, rows in parts if len(rows)]
        self.ends = np.cumsum([len(rows) for _, rows in self.parts], dtype=np.int64)
        self.lengths: NDArray[np.int64] = self._column("samples").astype(np.int64)
        self.keys: NDArray[np.uint64] = self._column("keys").astype(np.uint64)
        self.digest = digest(*(word for index, rows in self.parts for word in (index.digest, rows.tobytes())))

    @classmethod
    def open(cls, sources: Sequence[SourceSettings]) -> Self:
        """Open the sources of a config."""
        return cls([source.open() for source in sources])

    def _column(self, name: str) -> NDArray[Any]:
        columns = [np.asarray(getattr(index, name))[rows] for index, rows in self.parts]
        return np.concatenate(columns) if columns else np.zeros(0)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def place(self, utterance: int) -> tuple[int, int]:
        """Which part holds an utterance, and at which row of its index."""
        part = int(np.searchsorted(self.ends, utterance, side="right"))
        begin = int(self.ends[part - 1]) if part else 0
        return part, int(self.parts[part][1][utterance - begin])

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

    def languages(self) -> list[str]:
        """The languages that occur."""
        return sorted(
            {index.languages[code] for index, rows in self.parts for code in np.unique(index.language_codes[rows])}
        )

    def _speakers(self) -> NDArray[np.str_]:
        """The speaker of each utterance [n]."""
        return np.concatenate([np.asarray(index.speakers)[index.speaker_codes[rows]] for index, rows in self.parts])

    def only(self, chosen: NDArray[np.bool_]) -> Collection:
        """The utterances where ``chosen`` [n] is true."""
        begins = np.concatenate(([0], self.ends))
        return Collection(
            [(index, rows[chosen[begins[n] : begins[n + 1]]]) for n, (index, rows) in enumerate(self.parts)]
        )

    def sample(self, hours: float, purpose: str) -> NDArray[np.int64]:
        """Utterances of at most ``hours`` in all, at least one if there is any, in an order given by their keys.

        The choice for a ``purpose`` is the same everywhere, and hardly changes when a corpus grows.
        """
        order = np.argsort(seeding.hashed(self.keys, seeding.key(purpose)), kind="stable")
        enough = np.searchsorted(np.cumsum(self.lengths[order]), hours * 3600 * SAMPLE_RATE, side="right")
        return order[: max(int(enough), 1)]

    def at_most(self, hours: float, purpose: str) -> Collection:
        """The utterances of `sample`, in their own order."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[self.sample(hours, purpose)] = True
        return self.only(chosen)

    def hold_out(self) -> tuple[Collection, Collection, str]:
        """Split off 1 % or 500 utterances for validation: (the rest, the held-out ones, what was done, in words).

        Whole speakers are taken, in an order given by a hash of their names, so that the choice is the same
        everywhere and stays when a corpus grows; where no speaker is small enough, single utterances are.
        """
        wanted = min(MOST_HELD_OUT, int(len(self) * SHARE_HELD_OUT))
        if wanted < 1:
            return self, Collection([]), f"no utterances are held out for validation: there are only {len(self):,}."
        speakers, codes, counts = np.unique(self._speakers(), return_inverse=True, return_counts=True)
        order = np.argsort([seeding.key(f"hold out {name}") for name in speakers.tolist()], kind="stable")
        held = np.zeros(len(speakers), dtype=bool)
        for speaker in order:
            # A whole speaker may overshoot what is wanted a little, but never by half as much again.
            if speakers[speaker] and counts[held].sum() + counts[speaker] <= 1.5 * wanted:
                held[speaker] = True
            if counts[held].sum() >= wanted:
                break
        chosen = held[codes]
        what = f"of {int(held.sum())} whole speakers"
        if not chosen.any():
            chosen = np.zeros(len(self), dtype=bool)
            chosen[np.argsort(seeding.hashed(self.keys, seeding.key("hold out")), kind="stable")[:wanted]] = True
            what = "of speakers who are also trained on (no speaker is small enough to be held out whole)"
        said = f"{int(chosen.sum()):,} utterances {what} are held out for validation; name a validation set to choose."
        return self.only(~chosen), self.only(chosen), said
