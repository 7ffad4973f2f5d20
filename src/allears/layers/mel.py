"""Waveforms → frames → energies in mel bands → logarithms: what all log-mel features share.

Everything is float32 whatever surrounds it; the product with the bands is float64, which neither autocast nor TF32 nor
bfloat16 products can reach, and which makes a frame the same in a batch as alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

import torch

from allears.layers.masking import real_frames
from allears.layers.uncast import Uncast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    Counts = TypeVar("Counts", "NDArray[np.int64]", Tensor)

BINS = 80
FULL_SCALE = 32768.0
BLOCK = 512
"""Frames that a CPU works on at a time, so that they stay in its cache."""
GROUP = 16
"""Bands that are summed in one product: as wide as a processor's registers, and of few bins."""


class MelFeatures(Uncast, ABC):
    """Log-mel energies of windowed frames.

    Args:
        window: float32 [window].
        fft: size of the transform; a shorter window is padded with zeros.
        hop: samples from one frame to the next.
        bands: weights of the bins of the power spectrum [≤ fft / 2 + 1, bands]; what is missing counts nothing.
    """

    window: Tensor
    bands: Tensor

    def __init__(self, window: Tensor, fft: int, hop: int, bands: Tensor) -> None:
        super().__init__()
        self.fft = fft
        self.hop = hop
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("bands", bands.double(), persistent=False)
        # Bands are narrow: of the product with all bins, four fifths would be with zeros.
        self._products = []
        for begin in range(0, BINS, GROUP):
            heard = bands[:, begin : begin + GROUP].any(dim=1).nonzero()
            self._products.append((slice(int(heard[0]), int(heard[-1]) + 1), slice(begin, begin + GROUP)))

    @abstractmethod
    def frames(self, samples: Counts) -> Counts:
        """Frames of utterances of ``samples`` [n]."""

    @abstractmethod
    def extended(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        """Samples [batch, ≥ window] as they are given, frame t of an utterance beginning at sample t × hop."""

    @abstractmethod
    def windowed(self, frames: Tensor, out: Tensor) -> None:
        """Write frames [..., window], ready for the transform, into ``out`` [..., window]."""

    @abstractmethod
    def logarithm(self, energies: Tensor) -> Tensor:
        """Logarithms of energies ≥ 0."""

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features of int16 waveforms, or of others on the scale of int16.

        Args:
            waveforms: [batch, samples].
            lengths: [batch], in samples.

        Returns:
            Float32 features [batch, frames, bands] and their lengths [batch] in frames; padding is zero.
        """
        with torch.autocast(waveforms.device.type, enabled=False):
            lengths_in_frames = self.frames(lengths)
            samples = self.extended(waveforms, lengths)
            features = (
                self._in_blocks(samples) if samples.device.type == "cpu" else self._features(self._framed(samples))
            )
            real = real_frames(lengths_in_frames, features.shape[1])
            return features.masked_fill_(~real[:, :, None], 0.0), lengths_in_frames

    def _framed(self, samples: Tensor) -> Tensor:
        """Float32 frames [batch, frames, window] of samples."""
        return samples.float().unfold(1, len(self.window), self.hop)

    def _in_blocks(self, samples: Tensor) -> Tensor:
        """Features of samples; some frames at a time stay in the cache of a CPU, in memory that is used again."""
        window, count = len(self.window), 1 + (samples.shape[1] - len(self.window)) // self.hop
        features = torch.empty(len(samples), count, BINS)
        rows, size = max(BLOCK // count, 1), -(-count // -(-count // BLOCK))  # blocks of one size
        room = torch.zeros(0)
        for some, found in zip(torch.split(samples, rows), torch.split(features, rows), strict=True):
            for begin, out in zip(range(0, count, size), torch.split(found, size, dim=1), strict=True):
                part = some[:, begin * self.hop : (begin + out.shape[1] - 1) * self.hop + window]
                frames = self._framed(part)
                if room.shape[:2] != frames.shape[:2]:
                    room = torch.zeros(*frames.shape[:2], self.fft)
                out.copy_(self._features(frames, room))
        return features

    def _features(self, frames: Tensor, room: Tensor | None = None) -> Tensor:
        """Features of frames; ``room`` for as many [batch, frames, fft] is zero beyond the window."""
        if room is None:
            room = frames.new_zeros(*frames.shape[:2], self.fft)
        self.windowed(frames, room[..., : len(self.window)])
        squares = torch.view_as_real(torch.fft.rfft(room)).square()
        power = (squares[..., 0] + squares[..., 1]).double().flatten(0, 1)  # [frames, bins]; a matrix is not copied
        energies = [power[:, bins] @ self.bands[bins, bands] for bins, bands in self._products]
        return self.logarithm(torch.cat(energies, dim=1).float()).view(*frames.shape[:2], BINS)


def triangles(places: Tensor, edges: Tensor) -> Tensor:
    """Bands [places, edges - 2] that rise from 0 at an edge to 1 at the next and fall to 0 at the one after."""
    rising = (places[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - places[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp_min(0.0)
