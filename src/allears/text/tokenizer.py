"""Text ↔ token ids: a vocabulary and the normaliser that belongs to it, trained, kept in a folder, read again.

Ids: 0 is CTC's blank, 1 the unknown token. Training is a function of the texts and settings alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field

from allears.errors import DataError, SettingsError
from allears.files import digest, read_json, write_json, written
from allears.scripts import is_cjk, packed, runs
from allears.settings import Settings, build
from allears.text import pieces
from allears.text.normalise import NormaliserSettings, normalise
from allears.text.vocabulary import BLANK, UNKNOWN, Characters, Vocabulary, Words, counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Kind = Literal["characters", "words", "bpe", "mixed"]
VERSION: Literal[2] = 2
_MODEL, _SETTINGS = "tokenizer.model", "tokenizer.json"


class TokenizerSettings(Settings):
    """How text becomes tokens.

    Attributes:
        kind: ``bpe``: byte-pair encoding; ``characters``: one token each; ``words``: one token each, for spoken
            commands; ``mixed``: one token for each CJK character, byte-pair encoding for the rest.
        pieces: size of the byte-pair vocabulary; blank, unknown and bytes are counted, the CJK characters of ``mixed``
            come on top; ``characters`` and ``words`` are as many as there are.
        minimum_count: characters (or words, for ``words``) that occur less often get no token of their own.
        byte_fallback: whether 256 of the pieces are bytes, in which any character can be written; otherwise what is
            not in the vocabulary is the unknown token. None means from 512 pieces on.
        most_unknown: utterances with a greater share of unknown tokens are not trained on. (A sentence of another
            script is half unknown tokens in pieces, the spaces being known.)
        sentences: how many transcripts it is trained on at most.
        path: folder of a tokenizer made before; then nothing is trained.
        text: what is done to a transcript first.
    """

    kind: Kind = "bpe"
    pieces: int = Field(default=128, ge=8, le=100_000)
    minimum_count: int = Field(default=2, ge=1)
    byte_fallback: bool | None = None
    most_unknown: float = Field(default=0.4, ge=0, le=1)
    sentences: int = Field(default=1_000_000, ge=1)
    path: str | None = None
    text: NormaliserSettings = NormaliserSettings()


class _Stored(Settings):
    """``tokenizer.json``: see `Tokenizer`; ``sentencepiece`` tells whether ``tokenizer.model`` belongs to it."""

    version: Literal[2]
    kind: Kind
    text: NormaliserSettings
    units: tuple[str, ...]
    sentencepiece: bool
    digest: str


class Tokenizer:
    """A trained vocabulary and its normaliser.

    Args:
        kind: see `TokenizerSettings`.
        text: what is done to a transcript first.
        units: characters or words with a token of their own.
        model: of SentencePiece; empty when there are no pieces.
    """

    def __init__(self, kind: Kind, text: NormaliserSettings, units: Sequence[str], model: bytes) -> None:
        self.kind = kind
        self._text = text
        self._units = units
        self._model = model
        self._vocabulary = _vocabulary(kind, units, model)
        self.digest = _digest(kind, text, units, model)

    @property
    def size(self) -> int:
        """Number of token ids, blank and unknown included."""
        return self._vocabulary.size

    @property
    def writes_bytes(self) -> bool:
        """Whether characters without a token become bytes; otherwise they become the unknown token."""
        return bool(self._vocabulary.byte_ids)

    def normalise(self, text: str) -> str:
        """The text that `encode` sees."""
        return normalise(text, self._text)

    def encode(self, text: str) -> NDArray[np.int32]:
        """Token ids [tokens] of a transcript as it came; never fails, whatever its script."""
        return np.array(self._vocabulary.encode(self.normalise(text)), dtype=np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of token ids, blanks and unknown tokens left out."""
        known = [token for token in tokens if token not in {BLANK, UNKNOWN}]
        return " ".join(self._vocabulary.decode(known).split())

    def unknown(self, text: str) -> list[str]:
        """The characters (for ``words``: words) of a transcript as it came that have no token of their own."""
        return self._vocabulary.unknown(self.normalise(text))

    def unknown_tokens(self, tokens: NDArray[np.int32]) -> int:
        """How many of ``tokens`` [tokens] are the unknown token, or a byte."""
        of_bytes = self._vocabulary.byte_ids
        return int(np.count_nonzero((tokens == UNKNOWN) | ((tokens >= of_bytes.start) & (tokens < of_bytes.stop))))

    def save(self, folder: Path) -> None:
        """Write the vocabulary and its normaliser to ``folder``."""
        if self._model:
            with written(folder / _MODEL) as file:
                file.write(self._model)
        else:
            (folder / _MODEL).unlink(missing_ok=True)
        stored = _Stored(
            version=VERSION,
            kind=self.kind,
            text=self._text,
            units=tuple(self._units),
            sentencepiece=bool(self._model),
            digest=self.digest,
        )
        write_json(folder / _SETTINGS, stored.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            DataError: it is missing, damaged or of another version.
        """
        described = read_json(folder / _SETTINGS)
        try:
            stored = build(_Stored, described, _SETTINGS)
            model = (folder / _MODEL).read_bytes() if stored.sentencepiece else b""
            if _digest(stored.kind, stored.text, stored.units, model) != stored.digest:
                raise DataError(f"{_MODEL} is not the one that {_SETTINGS} belongs to, or one of them was changed")
            made = cls(stored.kind, stored.text, stored.units, model)
        except (OSError, RuntimeError, DataError, SettingsError) as error:
            raise DataError(
                f"{folder} holds no readable tokenizer: {str(error).rstrip('.')}; make one with 'allears tokenizer'."
            ) from error
        return made

    @classmethod
    def train(cls, texts: Sequence[str], settings: TokenizerSettings) -> tuple[Self, str]:
        """A vocabulary from transcripts as they came, and a remark for the user (empty when all is as asked).

        Raises:
            SettingsError: the texts hold nothing to learn from.
        """
        stride = max(1, -(-len(texts) // settings.sentences))
        lines = [line for line in (normalise(text, settings.text) for text in texts[::stride]) if line]
        if not lines:
            raise SettingsError("tokenizer: no transcript has a letter left after normalisation; check tokenizer.text.")
        words = settings.kind == "words"
        units, rare = counted((line.split() if words else line for line in lines), settings.minimum_count)
        remarks = [_rare(units, rare, settings)] if rare else []
        model = b""
        if settings.kind in {"bpe", "mixed"}:
            without = {ord(letter): " " for letter in rare}
            lines = [line.translate(without) for line in lines]
            units = [unit for unit in units if is_cjk(unit)] if settings.kind == "mixed" else []
            if settings.kind == "mixed":
                lines = [other for line in lines for other in runs(line)[::2]]
            if any(line.strip() for line in lines):
                trained, remark = pieces.train(lines, settings.pieces, settings.byte_fallback)
                model = trained.model
                remarks += [remark] if remark else []
        elif settings.kind == "characters" and any(" " in packed(line) for line in lines):
            units = [" ", *units]
        return cls(settings.kind, settings.text, units, model), " ".join(remarks)


def _vocabulary(kind: Kind, units: Sequence[str], model: bytes) -> Vocabulary:
    if kind == "characters":
        return Characters(units)
    if kind == "words":
        return Words(units)
    return pieces.Pieces(model) if kind == "bpe" else pieces.Mixed(pieces.Pieces(model) if model else None, units)


def _digest(kind: Kind, text: NormaliserSettings, units: Sequence[str], model: bytes) -> str:
    return digest(kind, text.model_dump_json(), model, *units)


def _rare(units: list[str], rare: list[str], settings: TokenizerSettings) -> str:
    """What to say of units that get no token of their own.

    Raises:
        SettingsError: none is left.
    """
    name = "word" if settings.kind == "words" else "character"
    if not units:
        raise SettingsError(
            f"tokenizer.minimum_count is {settings.minimum_count}: no {name} of these transcripts occurs so often; "
            "lower it."
        )
    return (
        f"tokenizer: {len(rare):,} of {len(rare) + len(units):,} {name}s occur fewer than {settings.minimum_count} "
        f"times (tokenizer.minimum_count) and get no token of their own, such as {', '.join(map(repr, rare[:5]))}."
    )


def ctc_frames(tokens: NDArray[np.int32]) -> int:
    """Frames that CTC needs for ``tokens`` [tokens]: one each, and a blank between equal neighbours."""
    return len(tokens) + int(np.count_nonzero(tokens[1:] == tokens[:-1]))
