"""What is measured of a transcript: its letters, its script, a digest to find it again, and what is wrong with it."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final, NamedTuple

from allears.scripts import HANGUL, is_cjk
from allears.seeding import key
from allears.text.normalise import NormaliserSettings, normalise

SCRIPTS: Final = (
    *(
        "none",
        "Latin",
        "Chinese or Japanese",
        "Hangul",
        "Cyrillic",
        "Greek",
        "Arabic",
        "Hebrew",
        "Devanagari",
        "Bengali",
    ),
    *("Tamil", "Telugu", "Thai", "Georgian", "Armenian", "Ethiopic", "another script"),
)
"""Scripts that are told apart, by code."""
CJK_CODE: Final = SCRIPTS.index("Chinese or Japanese")
CJK_WEIGHT: Final = 3
"""How many letters of an alphabet a Chinese character or kana is worth."""
NO_LETTERS, TWO_SCRIPTS, DAMAGED = 1, 2, 4
"""Bits of `Transcript.marks`."""

_PLAIN: Final = NormaliserSettings()
_CODES: Final = {name.upper(): code for code, name in enumerate(SCRIPTS)}
_HANGUL: Final = re.compile(f"[{HANGUL}\u1100-\u11ff\u3131-\u318e]")
_DAMAGED: Final = re.compile(
    "\ufffd"  # what a decoder writes for bytes that are no text
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # control characters
    # UTF-8 that was read as Latin-1 or Windows-1252; quotes and dashes may well follow a capital that ends a word.
    "|[ÂÃ][\u0080-\u00bf€‚ƒ„†‡ˆ‰Š‹ŒŽ•˜™š›œžŸ]"
    "|(?:[ÐÑØÙ][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]){2,}"
    "|â€"
    r"|&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,5});"
)


class Transcript(NamedTuple):
    """Measures of one transcript.

    Attributes:
        letters: after normalisation, without spaces.
        weight: the same, Chinese characters and kana counted three times.
        digest: 64 bits of the normalised text.
        script: that most of its letters belong to, a place in `SCRIPTS`.
        marks: `NO_LETTERS`, `TWO_SCRIPTS` (in one word) and `DAMAGED`, added.
        strange: letters beyond ASCII that are neither Chinese, kana nor Hangul, each once.
    """

    letters: int
    weight: int
    digest: int
    script: int
    marks: int
    strange: frozenset[str]


def measure(text: str) -> Transcript:
    """Measures of a transcript as it came."""
    plain = normalise(text, _PLAIN)
    letters = plain.replace(" ", "")
    bad = DAMAGED if damaged(text) else 0
    if not letters:
        return Transcript(0, 0, key(plain), 0, NO_LETTERS | bad, frozenset())
    if plain.isascii():
        script = 1 if any(map(str.isalpha, letters)) else 0
        return Transcript(len(letters), len(letters), key(plain), script, bad, frozenset())
    scripts = [script_of(letter) for letter in letters]
    known = [code for code in scripts if code]
    main = max(sorted(set(known)), key=known.count) if known else 0
    mixed = TWO_SCRIPTS if of_two_scripts(text) else 0
    cjk = scripts.count(CJK_CODE)
    strange = frozenset(letter for letter in letters if not letter.isascii() and not _has_many(letter))
    return Transcript(len(letters), len(letters) + (CJK_WEIGHT - 1) * cjk, key(plain), main, mixed | bad, strange)


def damaged(text: str) -> list[str]:
    """The pieces of a transcript as it came that no one wrote."""
    return _DAMAGED.findall(text)


def of_two_scripts(text: str) -> list[str]:
    """The words of a transcript as it came that have letters of two alphabets."""
    return [word for word in normalise(text, _PLAIN).split() if _mixes(word)]


@cache
def script_of(letter: str) -> int:
    """The script of a character, a place in `SCRIPTS`; 0 for digits, marks and signs."""
    if is_cjk(letter):
        return CJK_CODE
    if _HANGUL.match(letter):
        return _CODES["HANGUL"]
    if not letter.isalpha():
        return 0
    return _CODES.get(unicodedata.name(letter, "").partition(" ")[0], len(SCRIPTS) - 1)


def _has_many(letter: str) -> bool:
    """Whether its script has thousands of characters, so that single ones are rare by nature."""
    return script_of(letter) in {CJK_CODE, _CODES["HANGUL"]}


def _mixes(word: str) -> bool:
    """Whether a word has letters of two alphabets; Chinese characters stand beside any."""
    return len({script_of(letter) for letter in word if not _has_many(letter)} - {0}) > 1
