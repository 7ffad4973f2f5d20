"""Scripts that must be told apart: ranges for a regular expression's brackets, and the white space beside CJK.

Between two CJK characters there is no space; between one and a word of another script there is one ("打开 wifi"),
and none between one and a punctuation mark. So the spaces beside them carry nothing, and can be put back.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

CJK: Final = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Han, kana and bopomofo: written without spaces, each character a unit; Hangul is not here: Korean has spaces."""
HANGUL: Final = "\uac00-\ud7af"
"""Korean syllables: each a unit, but with spaces between words."""
SOUTH_EAST: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese, Khmer: written without spaces between words, but a character is less than a syllable."""
_RUN = re.compile(rf"\s*([{CJK}](?:[{CJK}\s]*[{CJK}])?)\s*")
_ANY = re.compile(f"[{CJK}]")


def is_mark(letter: str) -> bool:
    """Whether Unicode calls it punctuation (P…) or a symbol (S…); the apostrophe is a letter here."""
    return letter != "'" and unicodedata.category(letter)[0] in "PS"


def is_cjk(letter: str) -> bool:
    """Whether it is Han, kana or bopomofo."""
    return _ANY.match(letter) is not None


def runs(text: str) -> list[str]:
    """``text`` cut where CJK begins and ends, without the spaces there: other, CJK, other, …, other.

    The first and the last may be empty; white space inside CJK is gone.
    """
    parts = _RUN.split(text)
    parts[1::2] = ["".join(part.split()) for part in parts[1::2]]
    return parts


def packed(text: str) -> str:
    """``text`` without any space beside a CJK character."""
    return "".join(runs(text)) if _ANY.search(text) else text


def spaced(text: str) -> str:
    """``text`` with spaces beside CJK characters as the file's head says; other white space stays."""
    if not _ANY.search(text):
        return text
    first, *rest = runs(text)
    made = [first]
    for cjk, other in zip(rest[::2], rest[1::2], strict=True):
        made += [" " if made[-1] and not is_mark(made[-1][-1]) else "", cjk]
        made += [" " if other and not is_mark(other[0]) else "", other]
    return "".join(made)
