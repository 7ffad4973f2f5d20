"""Log-mel features of centred frames, as the short-time Fourier transforms of torch and librosa make them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from allears.layers.mel import BINS, FULL_SCALE, MelFeatures, triangles
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from torch import Tensor

    from allears.layers.mel import Counts


class LogMel(MelFeatures):
    """Periodic Hann window as long as the transform, power spectrum of samples within ±1, HTK's mel scale to Nyquist.

    Frame t is centred at sample t × hop. Beyond its own two ends an utterance is reflected, without repeating the end
    sample; one shorter than half a window is reflected to and fro, as numpy's ``reflect`` padding does.
    Source of the mel scale: Young et al., "The HTK Book", 2006.

    Args:
        fft: size of window and transform.
        hop: samples from one frame to the next.
        added: added to an energy before the logarithm.
        least: energies below it are raised to it.
    """

    def __init__(self, fft: int, hop: int, added: float = 0.0, least: float = 0.0) -> None:
        highest = 2595.0 * math.log10(1.0 + SAMPLE_RATE / 2 / 700.0)
        edges = 700.0 * (10.0 ** (torch.linspace(0.0, highest, BINS + 2) / 2595.0) - 1.0)
        bands = triangles(torch.linspace(0.0, SAMPLE_RATE / 2, fft // 2 + 1), edges)
        super().__init__(torch.hann_window(fft) / FULL_SCALE, fft, hop, bands)  # a power of two: it rounds nothing
        self.added = added
        self.least = least

    def frames(self, samples: Counts) -> Counts:
        """One at each whole hop, the first sample included."""
        return (1 + samples // self.hop) * (samples > 0)

    def extended(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        margin = self.fft // 2
        samples = torch.nn.functional.pad(waveforms, (margin, margin + (waveforms.shape[1] == 0)))
        last = (lengths[:, None] - 1).clamp_min(0)
        steps = torch.arange(1, margin + 1, device=lengths.device)
        for places in (-steps.expand(len(lengths), -1), last + steps):
            source = places.remainder((2 * last).clamp_min(1))
            source = torch.minimum(source, 2 * last - source)
            samples.scatter_(1, places + margin, samples.gather(1, source + margin))
        return samples

    def windowed(self, frames: Tensor, out: Tensor, spare: Tensor) -> None:  # noqa: ARG002
        torch.mul(frames, self.window, out=out)

    def logarithm(self, energies: Tensor) -> Tensor:
        return (energies + self.added).clamp_min(self.least).log()
