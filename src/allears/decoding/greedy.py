"""The best token of each frame, repeats and blanks removed: CTC's best path (Graves et al., ICML 2006, §3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

BLANK = 0


@dataclass(frozen=True, slots=True)
class BestPath:
    """What one utterance's best path says.

    Attributes:
        tokens: ids, repeats merged and blanks removed.
        confidence: mean over the tokens of each one's highest probability while it lasts; without a token the mean
            over the frames of the blank's, and without a frame 1. In [0, 1].
    """

    tokens: list[int]
    confidence: float


def greedy(log_probabilities: Tensor, lengths: Tensor) -> list[BestPath]:
    """The best path of each utterance.

    Args:
        log_probabilities: [batch, frames, vocabulary].
        lengths: [batch], in frames.
    """
    highest, best = log_probabilities.max(dim=-1)
    paths, scores = best.cpu().numpy(), highest.float().exp().cpu().numpy()  # [batch, frames] each
    return [
        _merged(path[:length], score[:length])
        for path, score, length in zip(paths, scores, lengths.tolist(), strict=True)
    ]


def _merged(path: NDArray[np.int64], probabilities: NDArray[np.float32]) -> BestPath:
    """Merge the best tokens [frames] of one utterance."""
    if not len(path):
        return BestPath([], 1.0)
    begins = np.flatnonzero(np.concatenate(([True], path[1:] != path[:-1])))
    spoken = path[begins] != BLANK
    lasting = np.maximum.reduceat(probabilities, begins)[spoken] if spoken.any() else probabilities
    return BestPath(path[begins][spoken].tolist(), min(float(lasting.mean(dtype=np.float64)), 1.0))
