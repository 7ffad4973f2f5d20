"""Kaldi's filter-bank features.

Source: Povey et al., "The Kaldi Speech Recognition Toolkit", ASRU 2011; ``feat/feature-fbank`` there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from allears.layers.mel import BINS, MelFeatures, triangles
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from torch import Tensor

    from allears.layers.mel import Counts

WINDOW, HOP, FFT = 400, 160, 512  # samples: 25 ms, 10 ms, the next power of two
LOWEST_HZ, PRE_EMPHASIS = 20.0, 0.97


class KaldiFbank(MelFeatures):
    """Povey window, pre-emphasis, no dither, no energy; mel scale 1127 ln(1 + f / 700) from 20 Hz to Nyquist.

    Window and bands are float32 throughout, as in torchaudio, whose numbers are met to the last bits where the FFT is
    the same. Bands that hold nothing (below 1e-6 of the frame's greatest) hold the rounding noise of the FFT, and each
    FFT has its own.
    """

    def __init__(self) -> None:
        # No band reaches Nyquist, so its bin is left out.
        hertz = torch.arange(FFT // 2) * (SAMPLE_RATE / FFT)
        lowest, highest = (1127.0 * math.log(1.0 + edge / 700.0) for edge in (LOWEST_HZ, SAMPLE_RATE / 2))
        edges = lowest + torch.arange(BINS + 2) * ((highest - lowest) / (BINS + 1))
        bands = triangles(1127.0 * torch.log(1.0 + hertz / 700.0), edges)
        super().__init__(torch.hann_window(WINDOW, periodic=False) ** 0.85, FFT, HOP, bands)

    def frames(self, samples: Counts) -> Counts:
        """Whole windows only (Kaldi's ``snip-edges``)."""
        return (1 + (samples - WINDOW) // HOP) * (samples >= WINDOW)

    def extended(self, waveforms: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002
        return nn.functional.pad(waveforms, (0, max(WINDOW - waveforms.shape[1], 0)))

    def windowed(self, frames: Tensor, out: Tensor, spare: Tensor) -> None:
        centred = spare[..., : WINDOW + 1]
        torch.sub(frames, frames.mean(dim=-1, keepdim=True), out=centred[..., 1:])
        centred[..., 0] = centred[..., 1]  # the first sample is its own predecessor
        torch.mul(centred[..., :-1], -PRE_EMPHASIS, out=out)
        out.add_(centred[..., 1:]).mul_(self.window)

    def logarithm(self, energies: Tensor) -> Tensor:
        return energies.clamp_min_(torch.finfo(torch.float32).eps).log_()
