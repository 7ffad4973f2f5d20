"""Scripts of the world, as far as counting errors must tell them apart: ranges for a regular expression's class."""

from __future__ import annotations

import re
from typing import Final

HAN_KANA: Final = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Chinese characters and Japanese syllables: written without spaces, each a unit."""
HANGUL: Final = "\uac00-\ud7af"
"""Korean syllables: each a unit, but with spaces between words."""
SOUTH_EAST: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese, Khmer: written without spaces between words, but a character is less than a syllable."""

_EDGE = re.compile(f"[{HAN_KANA}]")


def joined(texts: list[str]) -> str:
    """Texts in a row as one: with a space between, but for where Han or kana meet."""
    result = ""
    for text in texts:
        if result and text and not (_EDGE.match(result[-1]) and _EDGE.match(text[0])):
            result += " "
        result += text
    return result
