"""Transcripts as they came → the text that a model learns; stored with the model, so that it can be repeated."""

from __future__ import annotations

import unicodedata

from allears.settings import Settings

_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "＇": "'"})


class NormaliserSettings(Settings):
    """What is done to a transcript before it is tokenised.

    Attributes:
        lowercase: whether case is removed.
        punctuation: whether punctuation and symbols stay; the apostrophe always does.
    """

    lowercase: bool = True
    punctuation: bool = False


def normalise(text: str, settings: NormaliserSettings) -> str:
    """Unicode form NFKC, then as the settings say; runs of white space become one space."""
    text = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)
    if settings.lowercase:
        text = text.lower()
    if not settings.punctuation:
        text = "".join(letter if letter == "'" or not _is_mark(letter) else " " for letter in text)
    return " ".join(text.split())


def _is_mark(letter: str) -> bool:
    """Whether Unicode calls it punctuation (P…) or a symbol (S…)."""
    return unicodedata.category(letter)[0] in "PS"
