"""Examples → one padded batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allears.types import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from allears.types import Example


def collate(examples: Sequence[Example], waveforms: NDArray[np.int16] | None = None) -> Batch:
    """Pad ``examples`` (one or more) with zeros to the longest.

    Args:
        examples: what stands in the batch.
        waveforms: their waveforms [examples, longest], where they lie so already.
    """
    if waveforms is None:
        waveforms, waveform_lengths = _padded([example.waveform for example in examples], np.int16)
    else:
        waveform_lengths = np.array([len(example.waveform) for example in examples], dtype=np.int64)
    tokens, token_lengths = _padded([example.tokens for example in examples], np.int64)
    return Batch(
        [example.utterance for example in examples],
        torch.from_numpy(waveforms),
        torch.from_numpy(waveform_lengths),
        torch.from_numpy(tokens),
        torch.from_numpy(token_lengths),
        torch.from_numpy(np.stack([example.frequency_masks for example in examples])),
        torch.from_numpy(np.stack([example.time_masks for example in examples])),
    )


def _padded(rows: Sequence[NDArray[Any]], kind: type[np.generic]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows as one array [rows, longest] and their lengths [rows]."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.zeros((len(rows), int(lengths.max())), dtype=kind)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded, lengths
