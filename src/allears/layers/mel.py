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
    from collections.abc import Sequence

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
    groups: Tensor

    def __init__(self, window: Tensor, fft: int, hop: int, bands: Tensor) -> None:
        super().__init__()
        self.fft = fft
        self.hop = hop
        self.register_buffer("window", window, persistent=False)
        # Bands are narrow: of the product with all bins, four fifths would be with zeros.
        groups = torch.split(bands.double(), GROUP, dim=1)
        self.register_buffer("groups", torch.stack(groups), persistent=False)  # [groups, bins, GROUP]
        heard = [group.any(dim=1).nonzero() for group in groups]
        self._heard = [slice(int(bins[0]), int(bins[-1]) + 1) for bins in heard]

    @abstractmethod
    def frames(self, samples: Counts) -> Counts:
        """Frames of utterances of ``samples`` [n]."""

    @abstractmethod
    def extended(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        """Samples [batch, ≥ window] as they are given, frame t of an utterance beginning at sample t × hop."""

    @abstractmethod
    def windowed(self, frames: Tensor, out: Tensor, spare: Tensor) -> None:
        """Write frames [..., window] to transform into ``out`` [..., window], ``spare`` [..., fft] helping."""

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
            if samples.device.type == "cpu":
                return self._in_blocks(samples, lengths_in_frames.tolist()), lengths_in_frames
            frames = self._framed(samples)
            features = self._features(frames, frames.new_zeros(2, *frames.shape[:2], self.fft))
            return features * real_frames(lengths_in_frames, frames.shape[1])[:, :, None], lengths_in_frames

    @property
    def bands(self) -> Tensor:
        """Weights of the bins of the power spectrum [bins, bands], float64."""
        return self.groups.movedim(0, 1).flatten(1)

    def _framed(self, samples: Tensor) -> Tensor:
        """Float32 frames [batch, frames, window] of samples."""
        return samples.float().unfold(1, len(self.window), self.hop)

    def _in_blocks(self, samples: Tensor, lengths: Sequence[int]) -> Tensor:
        """Features of samples; some frames at a time stay in the cache of a CPU, in memory that is used again."""
        window, count = len(self.window), 1 + (samples.shape[1] - len(self.window)) // self.hop
        features = torch.empty(len(samples), count, BINS)
        rows, size = max(BLOCK // count, 1), -(-count // -(-count // BLOCK))  # blocks of one size
        room = torch.zeros(2, min(rows, len(samples)), size, self.fft)
        for some, found in zip(torch.split(samples, rows), torch.split(features, rows), strict=True):
            for begin in range(0, count, size):
                first = min(begin, count - size)  # the last one begins in the one before
                part = some[:, first * self.hop : (first + size - 1) * self.hop + window]
                found[:, first : first + size] = self._features(self._framed(part), room[:, : len(some)])
        for found, length in zip(features, lengths, strict=True):
            found[length:] = 0.0
        return features

    def _features(self, frames: Tensor, room: Tensor) -> Tensor:
        """Features of frames; ``room`` for twice as many [2, batch, frames, fft] begins with zeros."""
        self.windowed(frames, room[0, ..., : len(self.window)], room[1])
        squares = torch.view_as_real(torch.fft.rfft(room[0]))
        squares.mul_(squares)
        power = (squares[..., 0] + squares[..., 1]).double().flatten(0, 1)  # [frames, bins]; a matrix is not copied
        energies = [power[:, bins] @ group[bins] for bins, group in zip(self._heard, self.groups, strict=True)]
        return self.logarithm(torch.cat(energies, dim=1).float()).view(*frames.shape[:2], BINS)


def triangles(places: Tensor, edges: Tensor) -> Tensor:
    """Bands [places, edges - 2] that rise from 0 at an edge to 1 at the next and fall to 0 at the one after."""
    rising = (places[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - places[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp_min(0.0)
