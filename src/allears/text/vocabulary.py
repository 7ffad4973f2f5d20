"""Vocabularies of whole units: a token for each character, or for each word, that texts hold often enough.

The first two ids of every vocabulary are CTC's blank and the unknown token.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from allears.scripts import packed, spaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BLANK, UNKNOWN = 0, 1
FIRST = 2
"""The first id that stands for text."""


class Vocabulary(Protocol):
    """Normalised text ↔ token ids.

    Attributes:
        size: number of ids, blank and unknown included.
        byte_ids: ids that stand for one byte of a character without a token of its own.
    """

    size: int
    byte_ids: range

    def encode(self, text: str) -> list[int]:
        """Ids of a text; what has none becomes `UNKNOWN`, or bytes."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of ids, none of them `BLANK` or `UNKNOWN`; white space may be left over."""
        ...

    def unknown(self, text: str) -> list[str]:
        """The characters (or words) of a text that have no token of their own."""
        ...


class Characters:
    """One token for each character; a space beside a CJK character (see `allears.scripts`) has none."""

    byte_ids = range(0)

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known
        self._ids = {unit: n for n, unit in enumerate(known, FIRST)}
        self.size = FIRST + len(known)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(unit, UNKNOWN) for unit in self.units(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        return self.joined(self._known[token - FIRST] for token in tokens)

    def unknown(self, text: str) -> list[str]:
        return [unit for unit in self.units(text) if unit not in self._ids]

    @staticmethod
    def units(text: str) -> Sequence[str]:
        """What gets a token each."""
        return packed(text)

    @staticmethod
    def joined(units: Iterable[str]) -> str:
        """The text of units."""
        return spaced("".join(units))


class Words(Characters):
    """One token for each word between spaces."""

    @staticmethod
    def units(text: str) -> Sequence[str]:
        return text.split()

    @staticmethod
    def joined(units: Iterable[str]) -> str:
        return " ".join(units)


def counted(texts: Iterable[Iterable[str]], minimum_count: int) -> tuple[list[str], list[str]]:
    """The units of texts that occur at least so often, and the others; both sorted. Spaces are none."""
    counts: Counter[str] = Counter()
    for units in texts:
        counts.update(units)
    del counts[" "]
    rare = sorted(unit for unit in counts if counts[unit] < minimum_count)
    return sorted(counts.keys() - rare), rare
