"""Error rates: words, characters, and mixed units, as errors over reference units, added before they are divided.

An error is a substitution, an insertion or a deletion of the least costly alignment (Levenshtein), found by RapidFuzz.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rapidfuzz.distance import Levenshtein

from allears.scripts import CJK, HANGUL

if TYPE_CHECKING:
    from collections.abc import Iterable

Unit = Literal["word", "character", "mixed"]
UNITS: tuple[Unit, ...] = ("word", "character", "mixed")
RATES: dict[Unit, str] = {"word": "wer", "character": "cer", "mixed": "mer"}

# Han, kana and Hangul characters stand for themselves; a run of anything else between spaces is one unit.
_MIXED = re.compile(f"[{CJK}{HANGUL}]|[^\\s{CJK}{HANGUL}]+")


def units(text: str, unit: Unit) -> list[str]:
    """The units of ``text`` that are compared; white space is never one."""
    if unit == "word":
        return text.split()
    if unit == "character":
        return [letter for letter in text if not letter.isspace()]
    return _MIXED.findall(text)


@dataclass(frozen=True, slots=True)
class Count:
    """Errors of one or more hypotheses against their references; counts are added, never averaged."""

    units: int = 0
    substitutions: int = 0
    insertions: int = 0
    deletions: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.units + other.units,
            self.substitutions + other.substitutions,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
        )

    @property
    def errors(self) -> int:
        """Substitutions, insertions and deletions together."""
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Errors over units; with no unit at all, 0 without errors, and 1 with any."""
        return self.errors / self.units if self.units else float(self.errors > 0)


def count(reference: str, hypothesis: str, unit: Unit) -> Count:
    """Errors of ``hypothesis`` against ``reference``."""
    wanted, heard = units(reference, unit), units(hypothesis, unit)
    kinds = [edit.tag for edit in Levenshtein.editops(wanted, heard)]
    return Count(len(wanted), kinds.count("replace"), kinds.count("insert"), kinds.count("delete"))


def total(pairs: Iterable[tuple[str, str]], unit: Unit) -> Count:
    """Errors over (reference, hypothesis) pairs."""
    return sum((count(reference, hypothesis, unit) for reference, hypothesis in pairs), Count())
