"""Text ↔ token ids: byte-pair encoding by SentencePiece, with the normaliser that belongs to it.

Ids: 0 is CTC's blank, 1 the unknown token. Training is a function of the texts and settings alone.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import sentencepiece
from pydantic import Field

from allears.errors import DataError, SettingsError
from allears.files import digest, read_json, write_json, written
from allears.settings import Settings, build
from allears.text.normalise import NormaliserSettings, normalise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

BLANK, UNKNOWN = 0, 1
_MODEL, _SETTINGS = "tokenizer.model", "tokenizer.json"


class TokenizerSettings(Settings):
    """How text becomes tokens.

    Attributes:
        kind: ``bpe``, byte-pair encoding (Sennrich, Haddow, Birch, ACL 2016).
        pieces: size of the vocabulary, blank and unknown included.
        sentences: how many transcripts it is trained on at most.
        path: folder of a tokenizer made before; then nothing is trained.
        text: what is done to a transcript first.
    """

    kind: Literal["bpe"] = "bpe"
    pieces: int = Field(default=128, ge=8, le=100_000)
    sentences: int = Field(default=1_000_000, ge=1)
    path: str | None = None
    text: NormaliserSettings = NormaliserSettings()


class Tokenizer:
    """A trained vocabulary."""

    def __init__(self, model: bytes, text: NormaliserSettings) -> None:
        self._model = model
        self._text = text
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.digest = digest(model, text.model_dump_json())

    @property
    def size(self) -> int:
        """Number of token ids, blank and unknown included."""
        return int(self._processor.get_piece_size())

    def normalise(self, text: str) -> str:
        """The text that `encode` sees."""
        return normalise(text, self._text)

    def encode(self, text: str) -> NDArray[np.int32]:
        """Token ids [tokens] of a transcript as it came."""
        return np.array(self._processor.encode(self.normalise(text)), dtype=np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of token ids, blanks left out."""
        text = str(self._processor.decode([token for token in tokens if token != BLANK]))
        return " ".join(text.replace("⁇", " ").split())

    def save(self, folder: Path) -> None:
        """Write the vocabulary and its normaliser to ``folder``."""
        with written(folder / _MODEL) as file:
            file.write(self._model)
        described = {"kind": "bpe", "text": self._text.model_dump(), "model_digest": digest(self._model)}
        write_json(folder / _SETTINGS, described)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            DataError: it is missing or damaged.
        """
        described = read_json(folder / _SETTINGS)
        try:
            model = (folder / _MODEL).read_bytes()
            if digest(model) != described["model_digest"]:
                raise DataError(f"{_MODEL} is not the one that {_SETTINGS} belongs to")
            return cls(model, build(NormaliserSettings, described["text"], _SETTINGS))
        except (OSError, KeyError, TypeError, RuntimeError, DataError, SettingsError) as error:
            raise DataError(
                f"{folder} holds no readable tokenizer: {str(error).rstrip('.')}; make one with 'allears tokenizer'."
            ) from error

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
        pieces, remark = settings.pieces, ""
        try:
            model = _train(lines, pieces)
        except RuntimeError as error:
            bound = re.search(r"<= (\d+)\.$", str(error).strip())
            if bound is None:
                needed = re.search(r"\d+ vs (\d+)", str(error))
                rule = (
                    f"must be at least {needed.group(1)} for the letters of these transcripts" if needed else str(error)
                )
                raise SettingsError(f"tokenizer.pieces is {pieces}: {rule}; raise it.") from error
            pieces = int(bound.group(1))
            model = _train(lines, pieces)
            remark = f"tokenizer: these transcripts support {pieces} pieces, not {settings.pieces}; {pieces} are used."
        return cls(model, settings.text), remark


def ctc_frames(tokens: NDArray[np.int32]) -> int:
    """Frames that CTC needs for ``tokens`` [tokens]: one each, and a blank between equal neighbours."""
    return len(tokens) + int(np.count_nonzero(tokens[1:] == tokens[:-1]))


def _train(lines: list[str], pieces: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=pieces,
        character_coverage=1.0,
        normalization_rule_name="identity",
        num_threads=1,
        pad_id=BLANK,
        pad_piece="<blank>",
        unk_id=UNKNOWN,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    return model.getvalue()
