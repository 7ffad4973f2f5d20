"""Which rate stands for a test set: words, characters or mixed units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from allears.scoring.rates import Unit, units
from allears.scripts import CJK, SOUTH_EAST

if TYPE_CHECKING:
    from collections.abc import Iterable

# Written without spaces between words, so that characters are what is counted.
UNSPACED = frozenset(("zh", "cmn", "yue", "wuu", "nan", "hak", "ja", "th", "lo", "km", "my"))
NOTABLE = 0.05
"""Share of the units from which on both scripts of a set count: a few foreign names do not make it a mixed one."""

_CHARACTER = re.compile(f"[{CJK}]")
_SOUTH_EAST = re.compile(f"[{SOUTH_EAST}]")


def headline(references: Iterable[str], languages: Iterable[str] = ()) -> Unit:
    """The unit to count in ``references``, whose ``languages`` are BCP 47 tags (empty ones are unknown).

    Mixed, where Chinese or Japanese stands beside words of another script and each has a notable share; else what the
    languages call for, and where they are unknown or disagree, what the script does.
    """
    characters = words = southern = 0
    for text in references:
        for unit in units(text, "mixed"):
            if _CHARACTER.match(unit):
                characters += 1
            elif any(letter.isalpha() for letter in unit):
                words += 1
                southern += bool(_SOUTH_EAST.search(unit))
    share = characters / max(characters + words, 1)
    if NOTABLE <= share <= 1 - NOTABLE:
        return "mixed"
    known = {tag.replace("_", "-").split("-")[0].lower() for tag in languages} - {""}
    if known and (known <= UNSPACED or not known & UNSPACED):
        return "character" if known <= UNSPACED else "word"
    return "character" if share > 0.5 or 2 * southern > words else "word"
