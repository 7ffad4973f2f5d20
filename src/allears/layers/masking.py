"""Which frames are real and which are padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def real_frames(lengths: Tensor, frames: int) -> Tensor:
    """Booleans [batch, frames], true where a frame is not padding, from ``lengths`` [batch]."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]
