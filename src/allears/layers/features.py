"""Waveforms → log-mel features on the device, in float32; what pads a batch never touches a real frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import nn

from allears.layers.masking import real_frames
from allears.settings import Settings
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

WINDOW, HOP, FFT, BINS = 400, 160, 512, 80  # samples: 25 ms, 10 ms, the next power of two; mel bands
LOWEST_HZ, PRE_EMPHASIS = 20.0, 0.97


class FeatureSettings(Settings):
    """What the model hears.

    Attributes:
        kind: ``kaldi_fbank``: 80 log-mel bands as Kaldi computes them, without dither and energy.
        normalisation: ``utterance`` (mean and deviation of each band over the utterance) or ``none``.
    """

    kind: Literal["kaldi_fbank"] = "kaldi_fbank"
    normalisation: Literal["utterance", "none"] = "utterance"


def frame_count(samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frames of utterances of ``samples`` [n]: whole windows only (Kaldi's ``snip-edges``)."""
    return np.maximum(1 + (samples - WINDOW) // HOP, 0)


class KaldiFbank(nn.Module):
    """Kaldi's filter-bank features: Povey window, pre-emphasis, mel scale 1127 ln(1 + f / 700) from 20 Hz to Nyquist.

    Source: Povey et al., "The Kaldi Speech Recognition Toolkit", ASRU 2011; ``feat/feature-fbank`` there. Window and
    bands are float32 throughout, as in torchaudio, whose numbers are met to the last bits where the FFT is the same.
    """

    window: Tensor
    mel: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(WINDOW, periodic=False) ** 0.85, persistent=False)
        self.register_buffer("mel", _mel_bands(), persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features of int16 (or int16-scaled) waveforms.

        Args:
            waveforms: [batch, samples].
            lengths: [batch], in samples.

        Returns:
            Features [batch, frames, 80] and their lengths [batch] in frames; padding is zero.
        """
        with torch.autocast(waveforms.device.type, enabled=False):
            samples = waveforms.float()
            if samples.shape[1] < WINDOW:
                samples = nn.functional.pad(samples, (0, WINDOW - samples.shape[1]))
            frames = samples.unfold(1, WINDOW, HOP)  # [batch, frames, 400]
            frames = frames - frames.mean(dim=2, keepdim=True)
            before = torch.cat((frames[..., :1], frames[..., :-1]), dim=2)
            frames = (frames - PRE_EMPHASIS * before) * self.window
            spectrum = torch.fft.rfft(frames, n=FFT)[..., : FFT // 2]  # [batch, frames, 256]; no band reaches Nyquist
            power = spectrum.real.square() + spectrum.imag.square()
            features = (power @ self.mel).clamp_min(torch.finfo(torch.float32).eps).log()
            frame_lengths = (1 + torch.div(lengths - WINDOW, HOP, rounding_mode="floor")).clamp_min(0)
            real = real_frames(frame_lengths, features.shape[1])
            return features * real[:, :, None], frame_lengths


def _mel_bands() -> Tensor:
    """Triangles on the mel scale [256, 80]."""

    def mel(hertz: float) -> float:
        return 1127.0 * math.log(1.0 + hertz / 700.0)

    lowest, highest = mel(LOWEST_HZ), mel(SAMPLE_RATE / 2)
    edges = lowest + torch.arange(BINS + 2) * ((highest - lowest) / (BINS + 1))
    mels = 1127.0 * torch.log(1.0 + torch.arange(FFT // 2) * (SAMPLE_RATE / FFT) / 700.0)
    rising = (mels[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - mels[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp_min(0.0)


def normalised(features: Tensor, lengths: Tensor) -> Tensor:
    """Each band of each utterance with mean 0 and deviation 1 over its real frames; a constant band becomes zeros.

    Args:
        features: [batch, frames, bins], padding zero.
        lengths: [batch], in frames.
    """
    real = real_frames(lengths, features.shape[1])[:, :, None]
    count = lengths.clamp_min(1)[:, None, None].float()
    centred = (features - features.sum(dim=1, keepdim=True) / count) * real
    variance = centred.square().sum(dim=1, keepdim=True) / count
    # Log-mel bands of speech vary by whole units; below 1e-6 there is rounding only (digital silence).
    scale = torch.where(variance > 1e-6, variance.clamp_min(1e-6).rsqrt(), torch.zeros_like(variance))
    return centred * scale
