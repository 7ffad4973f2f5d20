"""The best token of each frame, repeats and blanks removed: CTC's best path (Graves et al., ICML 2006, §3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

BLANK = 0


def greedy(log_probabilities: Tensor, lengths: Tensor) -> list[list[int]]:
    """Token ids of each utterance.

    Args:
        log_probabilities: [batch, frames, vocabulary].
        lengths: [batch], in frames.
    """
    best = log_probabilities.argmax(dim=-1).cpu()
    hypotheses = []
    for path, length in zip(best, lengths.tolist(), strict=True):
        merged = torch.unique_consecutive(path[:length])
        hypotheses.append(merged[merged != BLANK].tolist())
    return hypotheses
