"""What is done to reference and hypothesis alike before errors are counted; it is named in the result.

It is not the training's normaliser: rates of models that learnt different texts can be compared only if what is counted
does not depend on the model. But it keeps nothing that any training takes away: no model could say it.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from typing import TYPE_CHECKING, Final

from allears.cleaning import cleaned, unannotated, unpunctuated
from allears.errors import SettingsError
from allears.scripts import CJK, spaced

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOSE_APOSTROPHE = re.compile(rf"(?<![^\s{CJK}'])'|'(?![^\s{CJK}'])")


def basic(text: str) -> str:
    """Words alone: NFKC, lower case; no annotations, punctuation, symbols or silent characters; single spaces.

    What is an annotation or silent is said by `allears.cleaning`. An apostrophe inside a word stays. Beside Chinese
    characters and Japanese syllables spaces are as in `allears.scripts`, however the text has them.
    """
    text = unpunctuated(unannotated(cleaned(text))).lower()
    text = _LOOSE_APOSTROPHE.sub(" ", text.replace("ς", "σ"))  # which of the two is written hangs on what stands beside
    return unicodedata.normalize("NFC", spaced(verbatim(text)))


def verbatim(text: str) -> str:
    """The text as it is, with single spaces: case and punctuation count."""
    return " ".join(text.split())


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
