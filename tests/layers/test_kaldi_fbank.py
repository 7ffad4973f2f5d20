from __future__ import annotations

import numpy as np
import pytest
import torch

from allears.layers.kaldi_fbank import KaldiFbank


def test_frames_are_whole_windows() -> None:
    made = KaldiFbank()
    assert made.frames(np.array([0, 1, 399, 400, 559, 560, 719, 720])).tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert made.frames(torch.tensor([0, 399, 400, 560])).tolist() == [0, 0, 1, 2]


def test_a_frame_is_what_the_definition_says() -> None:
    """Mean off, pre-emphasis, Povey window, power spectrum of 512, triangles in mel, logarithm: in float64."""
    waveform = np.random.default_rng(2).normal(0, 3000, 400).astype(np.int16)
    frame = waveform - waveform.mean(dtype=np.float64)
    frame -= 0.97 * np.concatenate((frame[:1], frame[:-1]))
    frame *= (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    power = abs(np.fft.rfft(frame, 512)) ** 2
    mel = 1127 * np.log(1 + np.arange(257) * 31.25 / 700)
    edges = np.linspace(1127 * np.log(1 + 20 / 700), 1127 * np.log(1 + 8000 / 700), 82)
    wanted = [
        np.log(power @ np.interp(mel, edges[band : band + 3], [0.0, 1.0, 0.0], left=0, right=0)) for band in range(80)
    ]
    found, _ = KaldiFbank()(torch.from_numpy(waveform)[None], torch.tensor([400]))
    assert found[0, 0].numpy() == pytest.approx(np.array(wanted), abs=1e-4)
