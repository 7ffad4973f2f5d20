"""A tokenizer by itself, to be shared by several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allears.loading.collection import Collection
from allears.settings import build
from allears.text.tokenizer import Tokenizer, TokenizerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from allears.loading.collection import SourceSettings


def make_tokenizer(source: SourceSettings, out: Path, values: dict[str, Any]) -> tuple[Tokenizer, str]:
    """A tokenizer from a dataset's transcripts, written to ``out``, and a remark on it (often empty).

    Args:
        source: the dataset.
        out: a folder.
        values: of `TokenizerSettings`.

    Raises:
        SettingsError: a value is wrong, or the transcripts hold nothing to learn from.
    """
    settings = build(TokenizerSettings, values, "tokenizer")
    collection = Collection.open([source])
    made, remark = Tokenizer.train([collection.text(utterance) for utterance in range(len(collection))], settings)
    made.save(out)
    return made, remark
