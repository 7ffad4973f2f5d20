"""Byte-pair encoding (Sennrich, Haddow, Birch, ACL 2016) by SentencePiece, alone or beside CJK characters.

With byte fallback a character without a piece becomes its UTF-8 bytes, which are 256 of the pieces.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import sentencepiece

from allears.errors import SettingsError
from allears.scripts import is_cjk, runs, spaced
from allears.text.vocabulary import BLANK, FIRST, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH_FOR_BYTES = 512
"""From so many pieces on bytes are among them by default: at fewer they would take most of the vocabulary."""
_BYTES = 256
_SPACE = "\u2581"


class Pieces:
    """A trained SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = int(self._processor.get_piece_size())
        self.byte_ids = range(FIRST, FIRST + _BYTES) if self._processor.is_byte(FIRST) else range(0)
        own = (n for n in range(FIRST, self.size) if n not in self.byte_ids)
        self._letters = {letter for n in own for letter in self._processor.id_to_piece(n)} - {_SPACE} | {" "}

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._processor.decode(list(tokens))).replace("\ufffd", "")  # bytes that are no text

    def unknown(self, text: str) -> list[str]:
        return [letter for letter in text if letter not in self._letters]


class Mixed:
    """CJK characters as tokens of their own, pieces for the rest; the characters' ids follow the pieces'.

    Args:
        pieces: for the rest; none where all is CJK.
        characters: with a token each. Others are left to the pieces.
    """

    def __init__(self, pieces: Pieces | None, characters: Sequence[str]) -> None:
        self._pieces = pieces
        self._characters = characters
        self._first = pieces.size if pieces else FIRST
        self._ids = {character: n for n, character in enumerate(characters, self._first)}
        self.size = self._first + len(characters)
        self.byte_ids = pieces.byte_ids if pieces else range(0)

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = []
        for n, run in enumerate(runs(text)):
            if n % 2:
                for character in run:
                    token = self._ids.get(character)
                    tokens += self._unlisted(character) if token is None else [token]
            else:
                tokens += self._other(run)
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        parts: list[str] = []
        rest: list[int] = []
        for token in tokens:
            if token < self._first:
                rest.append(token)
                continue
            if self._pieces and rest:
                parts.append(self._pieces.decode(rest))
                rest = []
            parts.append(self._characters[token - self._first])
        if self._pieces and rest:
            parts.append(self._pieces.decode(rest))
        return spaced("".join(parts))

    def unknown(self, text: str) -> list[str]:
        others = set(self._pieces.unknown(text)) if self._pieces else {letter for letter in text if letter != " "}
        return [letter for letter in text if letter in others and letter not in self._ids]

    def _other(self, run: str) -> list[int]:
        if self._pieces:
            return self._pieces.encode(run)
        return [UNKNOWN] * len(run.split())

    def _unlisted(self, character: str) -> list[int]:
        """A CJK character without a token: bytes, without the space that would begin a word, or unknown."""
        if not self.byte_ids:
            return [UNKNOWN]
        return [self.byte_ids[byte] for byte in character.encode()]


def train(lines: list[str], wanted: int, byte_fallback: bool | None) -> tuple[Pieces, str]:
    """A model of ``wanted`` pieces from normalised lines, and a remark where they support fewer.

    Args:
        lines: normalised transcripts.
        wanted: size of the vocabulary, blank, unknown and bytes included.
        byte_fallback: whether bytes are among them; None means from `ENOUGH_FOR_BYTES` pieces on.

    Raises:
        SettingsError: the letters alone are more.
    """
    with_bytes = wanted >= ENOUGH_FOR_BYTES if byte_fallback is None else byte_fallback
    pieces = wanted
    while True:
        try:
            model = _train(lines, pieces, with_bytes)
        except RuntimeError as error:
            bound = re.search(r"<= (\d+)\.$", str(error).strip())
            if bound is None:
                raise _too_few(lines, wanted, with_bytes, error) from error
            pieces = int(bound.group(1))
            if byte_fallback is None and with_bytes and pieces < ENOUGH_FOR_BYTES:
                with_bytes, pieces = False, wanted
            continue
        break
    if pieces == wanted:
        return Pieces(model), ""
    return Pieces(model), f"tokenizer: these transcripts support {pieces} pieces, not {wanted}; {pieces} are used."


def _too_few(lines: list[str], pieces: int, with_bytes: bool, error: RuntimeError) -> SettingsError:
    needed = re.search(r"\d+ vs (\d+)", str(error))
    if needed is None:
        return SettingsError(f"tokenizer.pieces is {pieces}: {error}.")
    remedies = [
        "raise it",
        *(["set tokenizer.byte_fallback=false"] if with_bytes else []),
        *(["set tokenizer.kind to characters or mixed for CJK text"] if any(map(is_cjk, "".join(lines))) else []),
        "raise tokenizer.minimum_count, which leaves out rare letters",
    ]
    return SettingsError(
        f"tokenizer.pieces is {pieces}: must be at least {needed.group(1)} for the letters of these transcripts"
        f"{' and 256 bytes' if with_bytes else ''}; {', or '.join(remedies)}."
    )


def _train(lines: list[str], pieces: int, with_bytes: bool) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=pieces,
        byte_fallback=with_bytes,
        character_coverage=1.0,
        normalization_rule_name="identity",
        max_sentence_length=1_000_000,  # bytes; longer lines would be left out without a word
        num_threads=1,
        pad_id=BLANK,
        pad_piece="<blank>",
        unk_id=UNKNOWN,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    return model.getvalue()
