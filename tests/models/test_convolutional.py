from __future__ import annotations

import numpy as np
import pytest
import torch

from allears.errors import SettingsError
from allears.models.convolutional import ConvolutionalSettings
from allears.settings import build

SMALL = ConvolutionalSettings(width=12, blocks=2, kernel=7)
BINS = 8


@pytest.mark.parametrize("training", [False, True])
def test_an_utterance_is_encoded_alike_alone_and_in_any_padding(training: bool) -> None:
    """In training alone means: with the statistics of the same frames, so all are the same utterance."""
    torch.manual_seed(0)
    encoder = ConvolutionalSettings(width=12, blocks=2, kernel=7, dropout=0.0).build(BINS).train(training)
    features = torch.randn(1, 41, BINS)
    alone, length = encoder(features, torch.tensor([41]))
    assert length.tolist() == [11]
    for padding in (1, 2, 3, 50):
        padded = torch.cat((features, torch.zeros(1, padding, BINS)), dim=1)
        found, found_length = encoder(padded, torch.tensor([41]))
        assert found_length.tolist() == [11]
        torch.testing.assert_close(found[:, :11], alone, atol=1e-5, rtol=1e-5)


def test_frames_out_are_those_that_come_out() -> None:
    encoder = SMALL.build(BINS).eval()
    counts = np.arange(0, 70)
    wanted = SMALL.frames(counts)
    for frames in counts.tolist():
        states, lengths = encoder(torch.zeros(1, max(frames, 1), BINS), torch.tensor([frames]))
        assert lengths.tolist() == [wanted[frames]]
        assert states.shape == (1, max(wanted[frames], 1), SMALL.width)


@pytest.mark.parametrize("kernel", [2, 14, 0, -1])
def test_a_kernel_must_be_odd(kernel: int) -> None:
    with pytest.raises(SettingsError, match=r"kernel is -?\d+: "):
        build(ConvolutionalSettings, {"kernel": kernel}, "x")


def test_a_frame_sees_both_sides_alike() -> None:
    """The receptive field of a frame is symmetric: a change hurts as far ahead as back."""
    torch.manual_seed(0)
    encoder = SMALL.build(BINS).eval()
    features = torch.randn(1, 400, BINS)
    changed = features.clone()
    changed[:, 200] += 5
    lengths = torch.tensor([400])
    moved = ((encoder(features, lengths)[0] - encoder(changed, lengths)[0]).abs().amax(dim=2)[0] > 1e-7).nonzero()
    # Two blocks of three frames to each side, and the strided pair's own reach of one.
    assert 50 - 8 <= moved.min() < 50 < moved.max() <= 50 + 8
    assert abs((50 - moved.min()) - (moved.max() - 50)) <= 1
