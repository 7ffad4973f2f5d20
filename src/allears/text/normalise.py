"""Transcripts as they came → the text that a model learns; stored with the model, so that it can be repeated.

Always: Unicode form NFKC (full width, ligatures, accents apart from their letters), one kind of apostrophe, nothing
that makes no sound, no annotations (see `allears.cleaning`), one space between words (see `allears.scripts`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from pydantic import model_validator

from allears.cleaning import cleaned, unannotated, unpunctuated
from allears.scripts import CJK, spaced
from allears.settings import Settings

STYLES: dict[str, dict[str, bool]] = {
    "plain": {"lowercase": True, "punctuation": False},
    "cased_punctuated": {"lowercase": False, "punctuation": True},
}
"""Names for the usual combinations of `NormaliserSettings`."""


class NormaliserSettings(Settings):
    """What is done to a transcript before it is tokenised; the name of one of `STYLES` may stand in its place.

    Attributes:
        lowercase: whether case is removed.
        punctuation: whether punctuation and symbols stay, and GigaSpeech's tags (``<COMMA>``) become what they name;
            the apostrophe always stays in a word.
    """

    lowercase: bool = True
    punctuation: bool = False

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in STYLES:
            raise ValueError(f"must be {' or '.join(STYLES)}, or a group of lowercase and punctuation")
        return STYLES[value]


_LONE_APOSTROPHES = re.compile(rf"(?<![^\s{CJK}'])'+(?![^\s{CJK}'])")


def normalise(text: str, settings: NormaliserSettings) -> str:
    """``text`` as the file's head and the settings say; what is normalised stays as it is."""
    text = unannotated(cleaned(text), settings.punctuation)
    if not settings.punctuation:
        text = _LONE_APOSTROPHES.sub(" ", unpunctuated(text))
    if settings.lowercase:
        text = text.lower()
    return unicodedata.normalize("NFC", spaced(" ".join(text.split())))  # letters that have come together
