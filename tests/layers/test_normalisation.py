from __future__ import annotations

import pytest
import torch

from allears.layers.normalisation import (
    GlobalNormalisation,
    UtteranceNormalisation,
    UtteranceScalarNormalisation,
)

LENGTHS = torch.tensor([50, 20, 2, 1, 0])


def features() -> torch.Tensor:
    """[5, 50, 6], zero behind `LENGTHS`; band 5 is constant."""
    made = torch.randn(5, 50, 6, generator=torch.Generator().manual_seed(1)) * torch.arange(1.0, 7.0) + 10
    made[:, :, 5] = -15.9
    return made * (torch.arange(50) < LENGTHS[:, None])[:, :, None]


def test_each_band_has_mean_zero_and_deviation_one_over_the_real_frames() -> None:
    scaled = UtteranceNormalisation()(features(), LENGTHS)
    for row, length in enumerate([50, 20]):
        real = scaled[row, :length, :5]
        assert real.mean(dim=0).abs().max() < 1e-5
        assert (real.square().mean(dim=0) - 1).abs().max() < 1e-5
        assert not scaled[row, length:].any()
    assert not scaled[:, :, 5].any()
    assert not scaled[3:].any()
    assert scaled.isfinite().all()


def test_all_bands_together_have_mean_zero_and_unbiased_deviation_one() -> None:
    raw = features()
    scaled = UtteranceScalarNormalisation()(raw, LENGTHS)
    for row, length in enumerate([50, 20, 2, 1]):
        real = raw[row, :length]
        torch.testing.assert_close(scaled[row, :length], (real - real.mean()) / (real.std() + 1e-8))
        assert not scaled[row, length:].any()
    assert not scaled[4].any()
    assert scaled.isfinite().all()


def test_global_statistics_are_taken_as_they_are() -> None:
    made = GlobalNormalisation(6)
    assert not made.ready()
    made.set(torch.arange(6.0), torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 0.0]))
    assert made.ready()
    raw = features()
    scaled = made(raw, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        wanted = (raw[row, :length, :5] - torch.arange(5.0)) / torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
        torch.testing.assert_close(scaled[row, :length, :5], wanted)
        assert not scaled[row, length:].any()
    assert not scaled[:, :, 5].any()  # a band that never varied in training says nothing


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
def test_statistics_keep_their_bits_in_a_cast_model(kind: str) -> None:
    made = GlobalNormalisation(1)
    made.set(torch.tensor([13.123456]), torch.tensor([3.7654321]))
    getattr(torch.nn.Sequential(made), kind)()
    assert made.mean.item() == torch.tensor(13.123456).item()
    assert made.deviation.dtype == torch.float32
