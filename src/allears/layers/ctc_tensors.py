"""The sums of connectionist temporal classification in tensor code, on any device and in any floating-point type.

Vectorised over batch and states; a Python loop over frames. All variables are logarithms. Those of a frame are kept
relative to their largest, so that rounding does not grow with the length of an utterance: in float32 the gradient of
3,000 frames is off by less than 1e-4, torch's own by 1e-2. No element is written by two at once, so that nothing
depends on an order: the same bits each time.
Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from allears.layers.masking import real_frames

if TYPE_CHECKING:
    from torch import Tensor


def likelihoods(
    log_probabilities: Tensor, labels: Tensor, lengths: Tensor, token_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihoods [batch], and forward variables [batch, frames, states], each frame's largest being 0.

    Args:
        log_probabilities: [batch, frames, vocabulary].
        labels: of the states [batch, states], as `allears.layers.ctc_loss.state_labels` gives them.
        lengths: [batch], in frames.
        token_lengths: [batch].
    """
    emissions, skips = _emissions(log_probabilities, labels), _skips(labels)
    real = real_frames(lengths, emissions.shape[1])
    # Before the first frame all paths stand in the first blank, from which both possible first states are reached.
    alpha = torch.full_like(emissions[:, 0], -torch.inf)
    alpha[:, 0] = 0.0
    scale = torch.zeros_like(alpha[:, 0], dtype=torch.float64)
    alphas = torch.empty_like(emissions)
    for frame, emission in enumerate(emissions.unbind(1)):
        behind = pad(alpha, (2, 0), value=-torch.inf)
        skipped = behind[:, :-2].where(skips, -torch.inf)
        following, peak = _from_peak(_log_sum(alpha, behind[:, 1:-1], skipped) + emission)
        alpha = following.where(real[:, frame, None], alpha)
        scale += peak.where(real[:, frame, None], 0.0)[:, 0]
        alphas[:, frame] = alpha
    return -(scale + (alpha + _end(labels, token_lengths, alpha)).logsumexp(1)).to(alpha.dtype), alphas


def gradient(
    log_probabilities: Tensor, labels: Tensor, lengths: Tensor, token_lengths: Tensor, alphas: Tensor, weights: Tensor
) -> Tensor:
    """Gradient of the sum of ``weights`` [batch] × `likelihoods` with respect to ``log_probabilities``, in its shape.

    It is minus the share of all paths that pass through a token in a frame: zero in padding and for tokens that the
    transcript lacks, NaN in an utterance that cannot be aligned.
    """
    emissions, skips = _emissions(log_probabilities, labels), _skips(labels)
    real = real_frames(lengths, emissions.shape[1])
    skips_ahead = pad(skips, (0, 2))[:, 2:]
    beta = _end(labels, token_lengths, alphas)
    betas = torch.empty_like(alphas)
    for frame in reversed(range(emissions.shape[1])):
        betas[:, frame] = beta
        ahead = pad(beta + emissions[:, frame], (0, 2), value=-torch.inf)
        skipped = ahead[:, 2:].where(skips_ahead, -torch.inf)
        beta = _from_peak(_log_sum(ahead[:, :-2], ahead[:, 1:-1], skipped))[0].where(real[:, frame, None], beta)
    shares = (alphas + betas).softmax(2).where(real[:, :, None], 0.0) * -weights[:, None, None]
    result = torch.zeros_like(log_probabilities)
    result[:, :, 0] = shares[:, :, 0::2].sum(2)
    # A token may stand in a transcript more than once: one place after the other, so that no two add at the same time.
    for place, column in enumerate(labels[:, 1::2].clamp_min(0).unbind(1)):
        columns = column[:, None, None].expand(-1, result.shape[1], 1)
        result.scatter_(2, columns, result.gather(2, columns) + shares[:, :, 2 * place + 1, None])
    return result


def _emissions(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Log-probabilities of the states' labels [batch, frames, states]; those of missing states are -inf."""
    columns = labels.clamp_min(0)[:, None].expand(-1, log_probabilities.shape[1], -1)
    return log_probabilities.gather(2, columns).where(labels[:, None] >= 0, -torch.inf)


def _skips(labels: Tensor) -> Tensor:
    """Whether a state can be reached from the one before the last [batch, states]: tokens unlike the token before."""
    return (labels > 0) & (labels != pad(labels, (2, 0))[:, :-2])


def _end(labels: Tensor, token_lengths: Tensor, like: Tensor) -> Tensor:
    """0 in the states in which a path may end, the last token and the last blank, else -inf [batch, states]."""
    state = torch.arange(labels.shape[1], device=labels.device)
    last = 2 * token_lengths[:, None]
    ends = (state == last) | (state == last - 1)
    return torch.zeros_like(ends, dtype=like.dtype).masked_fill(~ends, -torch.inf)


def _log_sum(first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    return torch.logaddexp(torch.logaddexp(first, second), third)


def _from_peak(variables: Tensor) -> tuple[Tensor, Tensor]:
    """``variables`` [batch, states] relative to the largest of a row, and that [batch, 1]; 0 where all are -inf."""
    peak = variables.amax(1, keepdim=True)
    peak = peak.where(peak != -torch.inf, 0.0)
    return variables - peak, peak
