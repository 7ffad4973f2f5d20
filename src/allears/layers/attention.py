"""Multi-head self-attention over the real frames of each utterance, with rotary or relative positions.

Sources: Vaswani et al., NeurIPS 2017; rotary: Su et al., "RoFormer", Neurocomputing 568, 2024; relative: Dai et al.,
"Transformer-XL", ACL 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from allears.layers.masking import real_frames

if TYPE_CHECKING:
    from torch import Tensor

Positions = Literal["rotary", "relative"]


def visible_keys(lengths: Tensor, frames: int) -> Tensor:
    """Which keys an attention may look at: booleans [batch, 1, 1, frames] from ``lengths`` [batch].

    An utterance of no frames sees its first frame of padding: a softmax over nothing has no value.
    """
    return real_frames(lengths.clamp_min(1), frames)[:, None, None, :]


def position_table(positions: Positions, frames: int, width: int, heads: int, device: torch.device) -> Tensor:
    """What `SelfAttention` needs to know of positions, the same for all layers, in float32.

    Returns:
        rotary: the rotation of each frame as complex numbers [frames, width / heads / 2].
        relative: sines and cosines of the distances from 1 - frames to frames [2 frames, width].
    """
    if positions == "rotary":
        angles = _angles(torch.arange(frames, device=device), width // heads)
        return torch.polar(torch.ones_like(angles), angles)
    angles = _angles(torch.arange(1 - frames, frames + 1, device=device), width)
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def _angles(places: Tensor, size: int) -> Tensor:
    """Angles [places, size / 2] at wave lengths from 2π to 20,000π places."""
    exponents = torch.arange(0, size, 2, device=places.device, dtype=torch.float32) / size
    return places[:, None] * 10_000.0**-exponents


class SelfAttention(nn.Module):
    """Attention within each utterance: [batch, frames, width] → the same.

    Args:
        width: size of a frame.
        heads: parts of it that attend by themselves; their size must be even.
        positions: ``rotary`` turns queries and keys; ``relative`` adds a learnt score of the distance.
    """

    def __init__(self, width: int, heads: int, positions: Positions) -> None:
        super().__init__()
        self.heads, self.positions = heads, positions
        self.input = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.distance = nn.Linear(width, width, bias=False) if positions == "relative" else None
        if self.distance is not None:
            self.content_bias = nn.Parameter(torch.zeros(width))
            self.distance_bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, visible: Tensor, table: Tensor) -> Tensor:
        """Attend.

        Args:
            x: [batch, frames, width].
            visible: see `visible_keys`.
            table: see `position_table`.
        """
        q, k, v = self.input(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # [batch, heads, frames, size]
        if self.distance is None:
            q, k = _rotated(q, table), _rotated(k, table)
            mask = visible
        else:
            mask = self._distance_scores(q, table).masked_fill(~visible, float("-inf"))
            q = q + self._by_head(self.content_bias)
        heard = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        attended: Tensor = self.output(heard.transpose(1, 2).flatten(2))
        return attended

    def _by_head(self, bias: Tensor) -> Tensor:
        return bias.view(self.heads, 1, -1)

    def _distance_scores(self, q: Tensor, table: Tensor) -> Tensor:
        """What the distance from each query to each key adds to its score [batch, heads, frames, frames]."""
        assert self.distance is not None
        frames, size = q.shape[2:]
        keys = self.distance(table.to(q.dtype)).unflatten(1, (self.heads, size)).permute(1, 2, 0)
        scores = ((q + self._by_head(self.distance_bias)) * size**-0.5) @ keys  # [batch, heads, frames, 2 frames]
        # Query i finds key j at distance j - i, in column j - i + frames - 1. Rows laid end to end and cut one shorter
        # move one column to the right each, and so does what is sought.
        ends: Tensor = scores.flatten(2)[..., frames - 1 : -1]
        return ends.view(*ends.shape[:2], frames, 2 * frames - 1)[..., :frames]


def _rotated(x: Tensor, table: Tensor) -> Tensor:
    """``x`` [batch, heads, frames, size], pairs of neighbours turned by ``table`` [frames, size / 2]."""
    pairs = torch.view_as_complex(x.to(torch.float32).view(*x.shape[:3], -1, 2))
    return torch.view_as_real(pairs * table).flatten(3).to(x.dtype)
