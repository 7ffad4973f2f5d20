"""The sums of connectionist temporal classification as Triton kernels: what `ctc_tensors` computes, on CUDA.

A program owns an utterance, or a frame of one, and everything that is written for it: there are no atomics, and no
program reads what it has written itself, which Triton does not order. Variables pass from state to state in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_BLOCK = 128
"""States that a program holds at least: one for each thread of its four warps."""

_SIZES = ["frames", "states", "vocabulary"]  # change with each batch; a kernel is not compiled for their divisors


def likelihoods(
    log_probabilities: Tensor, labels: Tensor, lengths: Tensor, token_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """As `ctc_tensors.likelihoods`, in float32; forward variables of padding are not written."""
    batch, frames, vocabulary = log_probabilities.shape
    states = labels.shape[1]
    losses = log_probabilities.new_empty(batch)
    alphas = log_probabilities.new_empty(batch, frames, states)
    _alphas[batch,](
        log_probabilities.contiguous(),
        labels,
        lengths.contiguous(),
        token_lengths.contiguous(),
        losses,
        alphas,
        frames,
        states,
        vocabulary,
        BLOCK=_block(states),
    )
    return losses, alphas


def gradient(
    log_probabilities: Tensor, labels: Tensor, lengths: Tensor, token_lengths: Tensor, alphas: Tensor, weights: Tensor
) -> Tensor:
    """As `ctc_tensors.gradient`, in float32."""
    batch, frames, vocabulary = log_probabilities.shape
    states = labels.shape[1]
    lengths = lengths.contiguous()
    betas = torch.empty_like(alphas)
    _betas[batch,](
        log_probabilities.contiguous(),
        labels,
        lengths,
        token_lengths.contiguous(),
        betas,
        frames,
        states,
        vocabulary,
        BLOCK=_block(states),
    )
    first, following = _repeats(labels)
    result = torch.zeros_like(log_probabilities, memory_format=torch.contiguous_format)
    _rows[frames, batch](
        alphas,
        betas,
        labels,
        first,
        following,
        lengths,
        weights.contiguous(),
        result,
        frames,
        states,
        vocabulary,
        BLOCK=_block(states),
    )
    return result


def _block(states: int) -> int:
    return max(SMALLEST_BLOCK, 1 << (states - 1).bit_length())


def _repeats(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Which states are the first of their token, and the next state of the same token, or the number of states.

    Both int32 [batch, states]. From a first state, the next ones lead through all places of its token in order.
    """
    tokens, states = labels[:, 1::2], labels.shape[1]
    place = torch.arange(tokens.shape[1], device=labels.device)
    later = (tokens[:, :, None] == tokens[:, None, :]) & (tokens[:, :, None] > 0) & (place[:, None] < place)
    first, following = torch.zeros_like(labels, dtype=torch.int32), torch.full_like(labels, states, dtype=torch.int32)
    if tokens.shape[1]:
        first[:, 1::2] = (tokens > 0) & ~later.any(1)
        following[:, 1::2] = (2 * place + 1).where(later, states).amin(2)
    return first, following


@triton.jit
def _log_sum(first: tl.tensor, second: tl.tensor, third: tl.tensor) -> tl.tensor:
    peak = tl.maximum(tl.maximum(first, second), third)
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    return peak + tl.log(tl.exp(first - peak) + tl.exp(second - peak) + tl.exp(third - peak))


@triton.jit
def _peak(variables: tl.tensor) -> tl.tensor:
    peak = tl.max(variables, axis=0)
    return tl.where(peak == float("-inf"), 0.0, peak)


@triton.jit(do_not_specialize=_SIZES)
def _alphas(
    log_probabilities: tl.tensor,
    labels: tl.tensor,
    lengths: tl.tensor,
    token_lengths: tl.tensor,
    losses: tl.tensor,
    alphas: tl.tensor,
    frames: int,
    states: int,
    vocabulary: int,
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Forward variables and loss of one utterance."""
    row = tl.program_id(0).to(tl.int64)
    state = tl.arange(0, BLOCK)
    label = tl.load(labels + row * states + state, mask=state < states, other=-1)
    one, two = tl.maximum(state - 1, 0), tl.maximum(state - 2, 0)
    skips = (state >= 2) & (label > 0) & (label != tl.gather(label, two, axis=0))
    alpha = tl.where(state == 0, 0.0, float("-inf"))
    scale = tl.full((), 0.0, tl.float64)
    for frame in range(tl.load(lengths + row)):
        at = row * frames + frame
        emission = tl.load(log_probabilities + at * vocabulary + label, mask=label >= 0, other=float("-inf"))
        stepped = tl.where(state >= 1, tl.gather(alpha, one, axis=0), float("-inf"))
        skipped = tl.where(skips, tl.gather(alpha, two, axis=0), float("-inf"))
        alpha = _log_sum(alpha, stepped, skipped) + emission
        peak = _peak(alpha)
        alpha -= peak
        scale += peak.to(tl.float64)
        tl.store(alphas + at * states + state, alpha, mask=state < states)
    last = 2 * tl.load(token_lengths + row)
    alpha = tl.where((state == last) | (state == last - 1), alpha, float("-inf"))
    peak = _peak(alpha)
    end = peak + tl.log(tl.sum(tl.exp(alpha - peak), axis=0))
    tl.store(losses + row, -(scale + end.to(tl.float64)).to(tl.float32))


@triton.jit(do_not_specialize=_SIZES)
def _betas(
    log_probabilities: tl.tensor,
    labels: tl.tensor,
    lengths: tl.tensor,
    token_lengths: tl.tensor,
    betas: tl.tensor,
    frames: int,
    states: int,
    vocabulary: int,
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Backward variables of one utterance, without the emission of their own frame."""
    row = tl.program_id(0).to(tl.int64)
    state = tl.arange(0, BLOCK)
    label = tl.load(labels + row * states + state, mask=state < states, other=-1)
    one, two = tl.minimum(state + 1, BLOCK - 1), tl.minimum(state + 2, BLOCK - 1)
    over = tl.gather(label, two, axis=0)
    skips = (state + 2 < BLOCK) & (over > 0) & (over != label)
    last = 2 * tl.load(token_lengths + row)
    beta = tl.where((state == last) | (state == last - 1), 0.0, float("-inf"))
    length = tl.load(lengths + row)
    for done in range(length):
        at = row * frames + length - 1 - done
        tl.store(betas + at * states + state, beta, mask=state < states)
        emission = tl.load(log_probabilities + at * vocabulary + label, mask=label >= 0, other=float("-inf"))
        ahead = beta + emission
        stepped = tl.where(state + 1 < BLOCK, tl.gather(ahead, one, axis=0), float("-inf"))
        skipped = tl.where(skips, tl.gather(ahead, two, axis=0), float("-inf"))
        beta = _log_sum(ahead, stepped, skipped)
        beta -= _peak(beta)


@triton.jit(do_not_specialize=_SIZES)
def _rows(
    alphas: tl.tensor,
    betas: tl.tensor,
    labels: tl.tensor,
    first: tl.tensor,
    following: tl.tensor,
    lengths: tl.tensor,
    weights: tl.tensor,
    result: tl.tensor,
    frames: int,
    states: int,
    vocabulary: int,
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """The gradient in one frame of one utterance; the places of a token are added one after the other."""
    frame = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    if frame < tl.load(lengths + row):
        state = tl.arange(0, BLOCK)
        there = state < states
        at = row * frames + frame
        score = tl.load(alphas + at * states + state, mask=there, other=float("-inf"))
        score += tl.load(betas + at * states + state, mask=there, other=float("-inf"))
        mass = tl.exp(score - tl.max(score, axis=0))  # NaN if all are -inf: a transcript that cannot be aligned
        weight = -tl.load(weights + row) / tl.sum(mass, axis=0)
        label = tl.load(labels + row * states + state, mask=there, other=-1)
        tl.store(result + at * vocabulary, weight * tl.sum(tl.where(label == 0, mass, 0.0), axis=0))
        owner = tl.load(first + row * states + state, mask=there, other=0) > 0
        place = tl.load(following + row * states + state, mask=owner, other=states)
        share = mass
        while tl.min(place, axis=0) < states:
            more = place < states
            share += tl.where(more, tl.gather(mass, tl.where(more, place, 0), axis=0), 0.0)
            place = tl.load(following + row * states + place, mask=more, other=states)
        tl.store(result + at * vocabulary + label, weight * share, mask=owner)
