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
    [found] = greedy(path(*tokens)[None], torch.tensor([len(tokens)]))
    assert found.tokens == expected


def test_what_stands_in_padding_is_not_heard() -> None:
    scores = torch.stack((path(1, 2, 2, 3), path(1, 2, 2, 3), path(1, 2, 2, 3)))
    assert [one.tokens for one in greedy(scores, torch.tensor([4, 2, 0]))] == [[1, 2, 3], [1, 2], []]


def heard(*frames: tuple[float, ...]) -> float:
    """Confidence of one utterance of these probabilities [frames, vocabulary]."""
    return greedy(torch.tensor(frames).log()[None], torch.tensor([len(frames)]))[0].confidence


def test_confidence_is_the_mean_over_tokens_of_their_highest_probability() -> None:
    blank, weak, sure, other = (0.7, 0.2, 0.1), (0.3, 0.6, 0.1), (0.1, 0.9, 0.0), (0.2, 0.3, 0.5)
    assert heard(weak, sure, weak) == pytest.approx(0.9)
    assert heard(blank, weak, sure, blank, other, blank) == pytest.approx((0.9 + 0.5) / 2)
    assert heard(weak, blank, sure) == pytest.approx((0.6 + 0.9) / 2)


def test_confidence_in_nothing() -> None:
    assert heard((0.8, 0.2), (0.6, 0.4)) == pytest.approx(0.7)
    assert greedy(torch.zeros(1, 3, 4), torch.tensor([0]))[0].confidence == 1.0


def test_confidence_is_a_probability() -> None:
    torch.manual_seed(0)
    for found in greedy((torch.randn(20, 50, 8) * 30).log_softmax(dim=-1), torch.randint(1, 51, (20,))):
        assert 0 <= found.confidence <= 1
