"""Transcripts → the characters that are spoken. Training and scoring share it: what one removes the other never counts.

A character that makes no sound goes: control and zero-width characters, soft hyphens, variation selectors, emoji,
Arabic tatweel, and the vowel points of Arabic and Hebrew, which few transcripts write. So do annotations such as
``<UNK>``, ``[noise]`` or ``{COUGH}``, though a word that was laughed (``[laughter-yes]``) stays.
"""

from __future__ import annotations

import re
import unicodedata

from allears.scripts import is_mark


def cleaned(text: str) -> str:
    """``text`` in Unicode form NFKC, with one kind of apostrophe, and without what makes no sound."""
    if text.isascii() and text.isprintable():
        return text
    return unicodedata.normalize("NFKC", text.translate(_CLEAN)).translate(_CLEAN)


def unannotated(text: str, punctuation: bool = False) -> str:
    """Clean ``text`` without annotations; with ``punctuation`` tags of it (``<COMMA>``) become what they name."""
    if _OPENING.search(text):
        return _ANNOTATION.sub(_marks if punctuation else " ", _LAUGHED.sub(r" \1 ", text))
    return text


def unpunctuated(text: str) -> str:
    """``text`` with a space for each punctuation mark and symbol but the apostrophe."""
    return text.translate(_PLAIN)


# GigaSpeech (Chen et al., Interspeech 2021) writes punctuation as tags. TED-LIUM has {NOISE}, Switchboard
# [laughter-yes] for a word said while laughing.
_TAGGED = {"COMMA": ",", "PERIOD": ".", "QUESTIONMARK": "?", "EXCLAMATIONPOINT": "!"}
_NAME = r"[/|]?[A-Za-z][A-Za-z0-9_/|:+-]*"
_OPENING = re.compile(r"[<\[{]")
_LAUGHED = re.compile(r"\[laughter-([A-Za-z'-]+)\]", re.IGNORECASE | re.ASCII)
_ANNOTATION = re.compile(rf"\s*(?:<({_NAME})>|\[{_NAME}\]|\{{{_NAME}\}})")


def _marks(found: re.Match[str]) -> str:
    """The punctuation mark that a tag names, close to the word before it, or a space."""
    return _TAGGED.get((found.group(1) or "").upper(), "") + " "


class _Clean(dict[int, str | None]):
    """What `str.translate` does with each character, found when it is first met."""

    def __missing__(self, code: int) -> str | None:
        self[code] = made = self.made(chr(code))
        return made

    def made(self, letter: str) -> str | None:
        if letter in "’‘‛ʼʻ＇´′᾽᾿":
            return "'"
        # U+2581 and U+FFFD are SentencePiece's own signs for a space and for bytes that are no text.
        if letter.isspace() or letter in "\u2581\ufffd" or _within(letter, _PICTURES):
            return " "
        category = unicodedata.category(letter)
        if category in {"Cc", "Cf", "Cs", "Me"} or _within(letter, _SILENT):
            return None
        if category == "Mn" and _within(letter, _POINTS):
            return None
        # NFKC would leave accents without a letter of these, such as the diaeresis U+00A8.
        return " " if category == "Sk" and not letter.isascii() else letter


class _Plain(_Clean):
    def made(self, letter: str) -> str | None:
        return " " if is_mark(letter) else letter


_CLEAN, _PLAIN = _Clean(), _Plain()
_PICTURES = ((0x2300, 0x23FF), (0x2600, 0x27BF), (0x2B00, 0x2BFF), (0x1F000, 0x1F0FF), (0x1F1E6, 0x1FAFF))
_SILENT = (
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x0640, 0x0640),  # tatweel
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)
_POINTS = ((0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x0652), (0x0656, 0x065F), (0x0670, 0x0670), (0x06D6, 0x06ED))


def _within(letter: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(letter) <= last for first, last in ranges)
