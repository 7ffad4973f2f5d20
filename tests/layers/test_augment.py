from __future__ import annotations

import numpy as np
import torch

from allears.layers.augment import SpecAugmentSettings, draw_bands, masked


def bands(*edges: tuple[float, float]) -> torch.Tensor:
    return torch.tensor([list(edges)], dtype=torch.float32).reshape(1, -1, 2)


def test_bands_lie_on_the_axis_and_are_no_wider_than_asked() -> None:
    drawn = draw_bands(2000, 0.3, np.random.default_rng(0))
    assert drawn.shape == (2000, 2)
    assert drawn.dtype == np.float32
    widths = drawn[:, 1] - drawn[:, 0]
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert 0 <= widths.min() < 0.01
    assert 0.29 < widths.max() <= 0.3 + 1e-6
    assert drawn[:, 0].min() < 0.01
    assert drawn[:, 1].max() > 0.99


def test_the_same_key_draws_the_same_bands() -> None:
    first, again, other = (draw_bands(3, 0.5, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_no_bands_hide_nothing() -> None:
    none = torch.from_numpy(draw_bands(0, 0.5, np.random.default_rng(0)))[None]
    features = torch.ones(1, 10, 8)
    assert none.shape == (1, 0, 2)
    assert torch.equal(masked(features, torch.tensor([10]), none, none), features)
    settings = SpecAugmentSettings(frequency_masks=0, time_masks=0)
    assert (settings.frequency_masks, settings.time_masks) == (0, 0)


def test_just_the_bands_become_zero() -> None:
    features = torch.ones(1, 10, 8)
    found = masked(features, torch.tensor([10]), bands((0.25, 0.5), (0.875, 1.0)), bands((0.0, 0.1), (0.3, 0.5)))
    expected = torch.ones(10, 8)
    expected[:, [2, 3, 7]] = 0
    expected[[0, 3, 4]] = 0
    assert torch.equal(found[0], expected)
    assert features.all()


def test_time_bands_are_shares_of_the_utterance_not_of_the_batch() -> None:
    features = torch.ones(2, 20, 4)
    time = bands((0.5, 1.0)).expand(2, -1, -1)
    none = torch.zeros(2, 0, 2)
    found = masked(features, torch.tensor([20, 8]), none, time)
    assert found[0, :, 0].tolist() == [1.0] * 10 + [0.0] * 10
    assert found[1, :8, 0].tolist() == [1.0] * 4 + [0.0] * 4
    alone = masked(features[1:, :8], torch.tensor([8]), none[1:], time[1:])
    assert torch.equal(found[1:, :8], alone)


def test_an_utterance_without_frames_is_no_trouble() -> None:
    assert masked(torch.ones(1, 1, 4), torch.tensor([0]), bands((0.0, 0.5)), bands((0.0, 1.0))).shape == (1, 1, 4)


def test_each_utterance_is_filled_with_its_own_value_and_padding_is_left_alone() -> None:
    features = torch.ones(2, 6, 4)
    features[1, 3:] = 0
    every, none = bands((0.5, 1.0)).expand(2, -1, -1), torch.zeros(2, 0, 2)
    found = masked(features, torch.tensor([6, 3]), every, none, torch.tensor([7.0, -9.0])[:, None, None])
    assert found[0].tolist() == [[1, 1, 7, 7]] * 6
    assert found[1].tolist() == [[1, 1, -9, -9]] * 3 + [[0, 0, 0, 0]] * 3
