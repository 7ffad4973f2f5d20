from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allears import seeding
from allears.errors import SettingsError
from allears.loading.augment import AugmentSettings
from allears.run.settings import RunSettings
from allears.settings import build

KEYS = np.array([seeding.key(f"u{n}") for n in range(3_000)], dtype=np.uint64)
LENGTHS = np.random.default_rng(0).integers(1, 40_000, len(KEYS))
THREE = AugmentSettings(speed=(0.9, 1.0, 1.1))


def test_the_plan_knows_how_many_samples_are_read() -> None:
    augmentation = THREE.build(5)
    for epoch in (0, 7):
        lengths = augmentation.lengths(LENGTHS, KEYS, epoch)
        for n in range(0, len(KEYS), 20):
            waveform = np.ones(int(LENGTHS[n]), dtype=np.int16)
            assert len(augmentation.waveform(waveform, int(KEYS[n]), epoch)) == lengths[n]
        assert (augmentation.shortest(LENGTHS) <= lengths).all()
        assert (lengths <= augmentation.longest(LENGTHS)).all()
        assert lengths.sum() == pytest.approx(augmentation.expected(LENGTHS).sum(), rel=0.01)


@pytest.mark.case("lhotse #1442")
def test_each_speed_is_as_likely_and_drawn_by_seed_epoch_and_utterance() -> None:
    lengths = np.full(len(KEYS), 9_900)
    found, counts = np.unique(THREE.build(5).lengths(lengths, KEYS, 0), return_counts=True)
    assert found.tolist() == [9_000, 9_900, 11_000]
    assert abs(counts - 1_000).max() < 100
    first = THREE.build(5).lengths(lengths, KEYS, 0)
    assert np.array_equal(THREE.build(5).lengths(lengths[::-7], KEYS[::-7], 0), first[::-7])
    for other in (THREE.build(5).lengths(lengths, KEYS, 1), THREE.build(6).lengths(lengths, KEYS, 0)):
        assert (other == first).mean() == pytest.approx(1 / 3, abs=0.05)


def test_without_speeds_nothing_changes() -> None:
    augmentation = AugmentSettings().build(5)
    assert np.array_equal(augmentation.lengths(LENGTHS, KEYS, 3), LENGTHS)
    assert np.array_equal(augmentation.expected(LENGTHS), LENGTHS)
    waveform = np.arange(100, dtype=np.int16)
    assert np.array_equal(augmentation.waveform(waveform, 1, 3), waveform)


@pytest.mark.parametrize(
    ("speed", "said"),
    [
        ([0.9, 0.4], "augment.speed.1 is 0.4: input should be greater than or equal to 0.5"),
        ([90, 100, 110], "augment.speed.0 is 90: input should be less than or equal to 2"),
        (0.9, "augment.speed is 0.9: must be a list"),
        (["fast"], "augment.speed.0 is 'fast': must be a number"),
    ],
)
def test_wrong_speeds_are_named(speed: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        build(RunSettings, {"augment": {"speed": speed}}, "x.yaml")
