from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from allears.layers import ctc_tensors
from allears.layers.ctc_loss import ctc_loss, ctc_loss_by

if TYPE_CHECKING:
    from collections.abc import Callable

ours = partial(ctc_loss_by, ctc_tensors)
Case = tuple[Tensor, Tensor, Tensor, Tensor]


def torchs(scores: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor) -> Tensor:
    return functional.ctc_loss(scores.transpose(0, 1), tokens, lengths, token_lengths, reduction="none")


def random_case(seed: int, batch: int, frames: int, tokens: int, vocabulary: int, spread: float = 2.0) -> Case:
    """Float32 logits and transcripts of all lengths up to ``tokens``; the first row is full."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, frames + 1, (batch,), generator=draw)
    token_lengths = torch.randint(0, tokens + 1, (batch,), generator=draw)
    lengths[0], token_lengths[0] = frames, tokens
    logits = spread * torch.randn(batch, frames, vocabulary, generator=draw)
    return logits, torch.randint(1, vocabulary, (batch, tokens), generator=draw), lengths, token_lengths


def computed(loss: Callable[..., Tensor], logits: Tensor, *transcripts: Tensor) -> tuple[Tensor, Tensor]:
    """Losses, and the gradient at the logits of their sum, each weighed by its row's number."""
    leaf = logits.clone().requires_grad_()
    losses = loss(leaf.log_softmax(2), *transcripts)
    (gradient,) = torch.autograd.grad((losses * torch.arange(1, 1 + len(losses))).sum(), leaf)
    return losses.detach(), gradient


def assert_torchs(case: Case) -> None:
    """Float32 is compared with torch's float64: torch's own float32 is wrong by more than the bound."""
    logits, *transcripts = case
    expected, expected_gradient = computed(torchs, logits.double(), *transcripts)
    losses, gradient = computed(ours, logits, *transcripts)
    assert losses.dtype == gradient.dtype == torch.float32
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-5)
    possible = expected.isfinite()
    scale = torch.arange(1, 1 + len(losses))[possible, None, None]
    torch.testing.assert_close(
        gradient[possible].double() / scale, expected_gradient[possible] / scale, rtol=0, atol=1e-5
    )


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    batch=st.integers(1, 5),
    frames=st.integers(1, 30),
    tokens=st.integers(0, 12),
    vocabulary=st.integers(2, 9),
    spread=st.sampled_from([0.1, 2.0, 5.0]),
)
def test_it_is_torchs_loss_and_gradient(
    seed: int, batch: int, frames: int, tokens: int, vocabulary: int, spread: float
) -> None:
    assert_torchs(random_case(seed, batch, frames, tokens, vocabulary, spread))


def test_repeated_tokens_and_empty_transcripts_are_among_what_is_compared() -> None:
    logits, _, _, _ = random_case(0, 3, 20, 6, 4)
    tokens = torch.tensor([[2, 2, 2, 1, 2, 2], [3, 3, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    assert_torchs((logits, tokens, torch.tensor([20, 3, 8]), torch.tensor([6, 2, 0])))


def collapsed(path: tuple[int, ...]) -> list[int]:
    """What a path is read as: runs of the same label count once, blanks not at all."""
    return [label for label, _ in itertools.groupby(path) if label != 0]


@pytest.mark.parametrize("transcript", [[], [1], [1, 1], [1, 2], [2, 1, 2], [1, 1, 1], [1, 1, 1, 1]])
def test_it_is_the_sum_over_all_paths(transcript: list[int]) -> None:
    """Loss, and gradient from the same sum by autograd, with probabilities that need not add to one."""
    scores = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    paths = [path for path in itertools.product(range(3), repeat=5) if collapsed(path) == transcript]
    arguments = (torch.tensor([transcript], dtype=torch.int64), torch.tensor([5]), torch.tensor([len(transcript)]))
    loss = ours(scores, *arguments)
    if not paths:
        assert loss.tolist() == [torch.inf]
        return
    frames = torch.arange(5)
    expected = -torch.stack([scores[0, frames, torch.tensor(path)].sum() for path in paths]).logsumexp(0)
    torch.testing.assert_close(loss[0], expected)
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, scores)[0])


def test_the_gradient_is_that_of_finite_differences() -> None:
    scores, *transcripts = random_case(3, 3, 8, 3, 4)
    transcripts[1] = torch.tensor([8, 7, 6])
    leaf = scores.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ours(x, *transcripts), (leaf,))


def test_padding_does_not_matter() -> None:
    """Frames and tokens beyond the lengths; many, for what they took part in would also cost precision."""
    logits, tokens, _, _ = random_case(4, 3, 400, 5, 6)
    lengths, token_lengths = torch.tensor([400, 380, 250]), torch.tensor([5, 0, 2])
    expected, gradient = computed(ours, logits, tokens, lengths, token_lengths)
    longer = torch.cat((logits, torch.zeros(3, 4, 6)), dim=1)
    more = torch.cat((tokens, torch.zeros(3, 300, dtype=torch.int64)), dim=1)
    for row in range(3):
        longer[row, lengths[row] :] = torch.nan
        more[row, token_lengths[row] :] = 10**6
    scores = longer.log_softmax(2).requires_grad_()
    losses = ours(scores, more, lengths, token_lengths)
    assert torch.equal(losses, expected)
    (at_scores,) = torch.autograd.grad(losses.sum(), scores)
    _, found = computed(ours, longer, more, lengths, token_lengths)
    for row, length in enumerate(lengths):
        assert (at_scores[row, length:] == 0).all()
        torch.testing.assert_close(found[row, :length], gradient[row, :length], rtol=0, atol=2e-6)


def test_thousands_of_frames_lose_no_precision() -> None:
    logits, *transcripts = random_case(5, 1, 3000, 300, 50)
    expected, expected_gradient = computed(torchs, logits.double(), *transcripts)
    losses, gradient = computed(ours, logits, *transcripts)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=0)
    assert (gradient - expected_gradient).norm() / expected_gradient.norm() < 1e-4


@pytest.mark.parametrize("loss", [ours, ctc_loss], ids=["tensors", "cpu"])
def test_what_cannot_be_aligned_is_infinite_and_has_no_gradient(loss: Callable[..., Tensor]) -> None:
    logits, _, _, _ = random_case(6, 2, 4, 3, 3)
    tokens, lengths, token_lengths = torch.tensor([[1, 1, 2], [1, 1, 2]]), torch.tensor([3, 4]), torch.tensor([3, 3])
    losses, gradient = computed(loss, logits, tokens, lengths, token_lengths)
    assert losses.isinf().tolist() == [True, False]
    assert gradient[0, :3].isnan().any()
    assert gradient[1].isfinite().all()


@pytest.mark.parametrize("loss", [ours, ctc_loss], ids=["tensors", "cpu"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_a_number_stays_so_in_its_own_utterance(value: float, loss: Callable[..., Tensor]) -> None:
    logits, *transcripts = random_case(7, 3, 12, 3, 5)
    transcripts[1] = torch.tensor([12, 11, 10])
    logits[1, 4, 2] = value
    losses, gradient = computed(loss, logits, *transcripts)
    assert losses.isfinite().tolist() == [True, False, True]
    assert gradient[[0, 2]].isfinite().all()


def test_a_token_of_probability_zero_is_no_obstacle_where_a_path_avoids_it() -> None:
    logits, *transcripts = random_case(8, 1, 12, 3, 5)
    logits[0, :5, 1:] = -1e4  # torch's gradient is NaN where it is -inf
    logits[0, 8, 0] = -1e4
    expected, expected_gradient = computed(torchs, logits.double(), *transcripts)
    losses, gradient = computed(ours, logits.where(logits > -1e4, -torch.inf), *transcripts)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", [ours, ctc_loss], ids=["tensors", "cpu"])
def test_a_frame_that_no_path_survives_makes_the_loss_infinite(loss: Callable[..., Tensor]) -> None:
    scores, *transcripts = random_case(11, 1, 12, 3, 5)
    scores[0, 6] = -torch.inf
    assert loss(scores, *transcripts).tolist() == [torch.inf]


def test_the_same_bits_twice() -> None:
    case = random_case(9, 4, 40, 9, 7)
    for one, other in zip(computed(ours, *case), computed(ours, *case), strict=True):
        assert torch.equal(one, other)


def test_on_a_cpu_it_is_torchs_own() -> None:
    logits, *transcripts = random_case(10, 4, 40, 9, 7)
    for mine, wanted in zip(
        computed(ctc_loss, logits, *transcripts), computed(torchs, logits, *transcripts), strict=True
    ):
        assert torch.equal(mine, wanted)
