"""A hypothesis under its reference, unit under unit, so that a person sees what went wrong."""

from __future__ import annotations

import unicodedata
from itertools import zip_longest
from typing import TYPE_CHECKING

from rapidfuzz.distance import Levenshtein

from allears.scoring.rates import units

if TYPE_CHECKING:
    from allears.scoring.rates import Unit

_MARKS = {"equal": "", "replace": "S", "insert": "I", "delete": "D"}


def aligned(reference: str, hypothesis: str, unit: Unit, width: int = 100) -> list[tuple[str, str, str]]:
    """(reference, hypothesis, marks) lines of at most ``width`` columns (but one unit) each.

    Marks are S, I and D for a substitution, insertion and deletion; asterisks stand where the other side has nothing.
    """
    lines: list[tuple[str, str, str]] = []
    used = width
    for wanted, heard, mark in _pairs(units(reference, unit), units(hypothesis, unit)):
        columns = max(_columns(wanted), _columns(heard))
        cells = [text + " " * (columns - _columns(text)) for text in (wanted, heard, mark)]
        if not lines or used + 1 + columns > width:
            lines.append((cells[0], cells[1], cells[2]))
            used = columns
        else:
            before = lines[-1]
            lines[-1] = (f"{before[0]} {cells[0]}", f"{before[1]} {cells[1]}", f"{before[2]} {cells[2]}")
            used += 1 + columns
    return [(wanted.rstrip(), heard.rstrip(), mark.rstrip()) for wanted, heard, mark in lines]


def _pairs(wanted: list[str], heard: list[str]) -> list[tuple[str, str, str]]:
    """Units that stand over each other, and the mark of each pair."""
    pairs: list[tuple[str, str, str]] = []
    for step in Levenshtein.opcodes(wanted, heard):
        here, there = wanted[step.src_start : step.src_end], heard[step.dest_start : step.dest_end]
        for one, other in zip_longest(here, there, fillvalue=""):
            stars = "*" * (_columns(one) + _columns(other))
            pairs.append((one or stars, other or stars, _MARKS[step.tag]))
    return pairs


def _columns(text: str) -> int:
    """Columns of a terminal that ``text`` takes: two for wide characters, none for marks on the one before."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
