"""How many tokens each utterance has, and how many of them stand for characters that the tokenizer does not know.

Known before training, so that a step's gradient can be scaled by its count, and what cannot be learnt is left out.

Counted once for a dataset and a tokenizer, and kept beside the dataset under the digest of both.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from allears import watching
from allears.errors import DataError
from allears.files import digest, written
from allears.loading.collection import Column
from allears.reporting import Progress, say
from allears.text.tokenizer import ctc_frames

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.loading.collection import Collection
    from allears.manifest.index import Index
    from allears.text.tokenizer import Tokenizer


def token_counts(collection: Collection, tokenizer: Tokenizer) -> Column:
    """(tokens, frames that CTC needs for them, unknown tokens) of each utterance, int32 [n, 3].

    Unknown are the unknown token and the bytes of a character that has no token of its own.
    """
    return Column([(_of_dataset(index, tokenizer), rows) for index, rows in collection.parts])


def counts_path(index: Index, tokenizer: Tokenizer) -> Path:
    """Where the counts of a dataset are kept for a tokenizer, int32 [rows, 3]."""
    return index.folder / "cache" / f"targets-{digest(index.digest, tokenizer.digest)[:16]}.npy"


def _of_dataset(index: Index, tokenizer: Tokenizer) -> NDArray[np.int32]:
    path = counts_path(index, tokenizer)
    with contextlib.suppress(OSError, ValueError, EOFError):  # absent or damaged: counted anew
        counts = np.load(path, mmap_mode="r", allow_pickle=False)
        if counts.shape == (len(index), 3) and counts.dtype == np.int32:
            return np.asarray(counts)
    counts = np.zeros((len(index), 3), dtype=np.int32)
    with Progress("counting tokens", len(index), "utterances") as progress:
        for row in range(len(index)):
            tokens = tokenizer.encode(index.text(row))
            counts[row] = len(tokens), ctc_frames(tokens), tokenizer.unknown_tokens(tokens)
            watching.go_on()
            progress.advance()
    try:
        with written(path) as file:
            np.save(file, counts)
    except DataError as error:
        say(f"note: token counts are not kept: {error}")
    return counts
