from __future__ import annotations

import pytest
import torch

from allears.decoding.greedy import greedy


def path(*tokens: int) -> torch.Tensor:
    """Log-probabilities [frames, 4] whose best path is ``tokens``."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), 4).float().log_softmax(dim=-1)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 1, 2, 3], [1, 2, 3]),
        ([0, 1, 0, 1, 1, 0], [1, 1]),
        ([2, 2, 0, 0, 2, 3, 3], [2, 2, 3]),
        ([0, 0, 0], []),
        ([3], [3]),
    ],
)
def test_repeats_are_merged_and_then_blanks_removed(tokens: list[int], expected: list[int]) -> None:
    assert greedy(path(*tokens)[None], torch.tensor([len(tokens)])) == [expected]


def test_what_stands_in_padding_is_not_heard() -> None:
    scores = torch.stack((path(1, 2, 2, 3), path(1, 2, 2, 3), path(1, 2, 2, 3)))
    assert greedy(scores, torch.tensor([4, 2, 0])) == [[1, 2, 3], [1, 2], []]
