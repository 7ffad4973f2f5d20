"""Connectionist temporal classification with the same bits each time on CUDA too, where torch's gradient uses atomics.

Source: Graves et al., "Connectionist Temporal Classification", ICML 2006.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from allears.layers import ctc_tensors
from allears.layers.masking import real_frames

if TYPE_CHECKING:
    from torch import Tensor


class Code(Protocol):
    """A module that computes loss and gradient: `ctc_tensors`, where both are described, or `ctc_kernels`."""

    def likelihoods(
        self, log_probabilities: Tensor, labels: Tensor, lengths: Tensor, token_lengths: Tensor
    ) -> tuple[Tensor, Tensor]: ...

    def gradient(
        self,
        log_probabilities: Tensor,
        labels: Tensor,
        lengths: Tensor,
        token_lengths: Tensor,
        alphas: Tensor,
        weights: Tensor,
    ) -> Tensor: ...


def ctc_loss(log_probabilities: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor) -> Tensor:
    """Negative log-likelihoods [batch] of transcripts, in nats; inf where frames are too few for the tokens.

    On a CPU it is torch's own, which is deterministic there; elsewhere Triton's kernels on CUDA where Triton is
    installed, else tensor code.

    Args:
        log_probabilities: float32 [batch, frames, vocabulary], from a log-softmax; blank at id 0.
        tokens: int64 [batch, tokens], from 1; what lies beyond ``token_lengths`` does not matter.
        lengths: int64 [batch], in frames; what lies beyond does not matter, NaN included.
        token_lengths: int64 [batch].
    """
    device = log_probabilities.device.type
    if device == "cpu":
        return nn.functional.ctc_loss(
            log_probabilities.transpose(0, 1), tokens, lengths, token_lengths, blank=0, reduction="none"
        )
    if device == "cuda" and find_spec("triton") is not None:
        from allears.layers import ctc_kernels

        return ctc_loss_by(ctc_kernels, log_probabilities, tokens, lengths, token_lengths)
    return ctc_loss_by(ctc_tensors, log_probabilities, tokens, lengths, token_lengths)


def ctc_loss_by(
    code: Code, log_probabilities: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor
) -> Tensor:
    """`ctc_loss` computed by ``code``, on any device.

    The gradient is that with respect to ``log_probabilities`` as free variables: minus the share of all paths that
    pass through a token in a frame. (torch's has their exponential added, a term that the gradient of a log-softmax
    takes out again; at the logits the two are equal.) An utterance whose loss is inf or NaN has NaN in its gradient, so
    that neither a guard that looks at losses nor one that looks at gradients misses it.
    """
    result: Tensor = _CtcLoss.apply(code, log_probabilities, tokens, lengths, token_lengths)  # type: ignore[no-untyped-call]
    return result


def state_labels(tokens: Tensor, token_lengths: Tensor) -> Tensor:
    """Labels int64 [batch, 2 × tokens + 1] of the states of transcripts: their tokens, and a blank (0) around each.

    States beyond a transcript are -1.
    """
    batch, longest = tokens.shape
    labels = tokens.new_zeros(batch, 2 * longest + 1)
    labels[:, 1::2] = tokens
    return labels.where(real_frames(2 * token_lengths + 1, 2 * longest + 1), -1)


class _CtcLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, code: Code, log_probabilities: Tensor, tokens: Tensor, lengths: Tensor, token_lengths: Tensor
    ) -> Tensor:
        labels = state_labels(tokens, token_lengths)
        losses, alphas = code.likelihoods(log_probabilities, labels, lengths, token_lengths)
        ctx.save_for_backward(log_probabilities, labels, lengths, token_lengths, alphas)
        ctx.code = code
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[None, Tensor, None, None, None]:
        log_probabilities, labels, lengths, token_lengths, alphas = ctx.saved_tensors
        found = ctx.code.gradient(log_probabilities, labels, lengths, token_lengths, alphas, weights)
        return None, found, None, None, None
