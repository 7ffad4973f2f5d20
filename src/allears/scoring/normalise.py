"""What is done to reference and hypothesis alike before errors are counted; it is named in the result.

It is not the training's normaliser: rates of models that learnt different texts can be compared only if what is counted
does not depend on the model.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from typing import TYPE_CHECKING, Final

from allears.errors import SettingsError
from allears.scoring.scripts import HAN_KANA

if TYPE_CHECKING:
    from collections.abc import Callable

_APOSTROPHES = str.maketrans(dict.fromkeys("’‘ʼ＇`´", "'"))
_TAG = re.compile(r"<[^<>]{1,40}>|\[[^\[\]]{1,40}\]")
_LOOSE_APOSTROPHE = re.compile(r"(?<!\w)'|'(?!\w)")
_BETWEEN_CJK = re.compile(f"(?<=[{HAN_KANA}]) (?=[{HAN_KANA}])")
_VARIATION = range(0xFE00, 0xFE10)


def basic(text: str) -> str:
    """Words alone: NFKC, lower case; no tags, punctuation, symbols or invisible characters; single spaces.

    Tags are ``<…>`` and ``[…]``. An apostrophe inside a word stays. Spaces between Chinese characters or Japanese
    syllables go.
    """
    text = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES))
    text = unicodedata.normalize("NFKC", _TAG.sub(" ", text).lower())
    text = _LOOSE_APOSTROPHE.sub(" ", "".join(map(_kept, text)))
    return _BETWEEN_CJK.sub("", verbatim(text))


def verbatim(text: str) -> str:
    """The text as it is, with single spaces: case and punctuation count."""
    return " ".join(text.split())


def _kept(letter: str) -> str:
    """The letter itself, a space for what parts words, or nothing for what is not seen."""
    kind = unicodedata.category(letter)
    if kind in {"Cf", "Me"} or ord(letter) in _VARIATION:
        return ""
    return " " if kind[0] in "PSCZ" and letter != "'" else letter


NORMALISERS: Final[dict[str, Callable[[str], str]]] = {"basic": basic, "verbatim": verbatim}


def normaliser(name: str) -> Callable[[str], str]:
    """The normaliser of that name.

    Raises:
        SettingsError: there is none.
    """
    if name not in NORMALISERS:
        near = difflib.get_close_matches(name, NORMALISERS, 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NORMALISERS)}."
        raise SettingsError(f"--normaliser {name!r} is not known; {remedy}")
    return NORMALISERS[name]
