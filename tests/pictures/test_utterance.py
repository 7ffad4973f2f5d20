from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from allears.layers.augment import SpecAugmentSettings
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import CtcModel, ModelSettings
from allears.pictures.utterance import encoder_input, hear, levels, write_audio
from allears.settings import build
from allears.types import Example

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def model_of(normalisation: str = "utterance") -> CtcModel:
    features = ModelSettings().features.__class__
    return ModelSettings(
        features=build(features, {"normalisation": normalisation}, "test"),
        spec_augment=SpecAugmentSettings(),
        encoder=ConvolutionalSettings(width=8, blocks=1),
    ).build(4)


def example(samples: int = 16000, masks: bool = False, seed: int = 0) -> Example:
    waveform = np.random.default_rng(seed).normal(0, 3000, samples).astype(np.int16)
    frequency = np.array([[0.25, 0.5]], np.float32) if masks else np.zeros((0, 2), np.float32)
    time = np.array([[0.5, 0.75]], np.float32) if masks else np.zeros((0, 2), np.float32)
    return Example(0, waveform, np.zeros(0, np.int32), frequency, time)


def sine(amplitude: float, seconds: float = 1.0, offset: float = 0.0) -> NDArray[np.int16]:
    time = np.arange(round(16000 * seconds)) / 16000
    return (32768 * (amplitude * np.sin(2 * np.pi * 500 * time) + offset)).astype(np.int16)


def test_levels_of_a_sine() -> None:
    found = levels(sine(0.5))
    assert found.level == pytest.approx(20 * math.log10(0.5 / math.sqrt(2)), abs=0.01)
    assert found.peak == pytest.approx(20 * math.log10(0.5), abs=0.01)
    assert found.dc_offset == pytest.approx(0, abs=1e-4)
    assert (found.silence, found.clipped) == (0.0, 0)


def test_a_constant_offset_is_neither_loud_nor_speech() -> None:
    found = levels(sine(0.1, offset=0.25))
    assert found.dc_offset == pytest.approx(0.25, abs=1e-3)
    assert found.level == pytest.approx(levels(sine(0.1)).level, abs=0.01)


def test_silence_is_what_lies_far_below_the_loudest() -> None:
    assert levels(np.concatenate((sine(0.5), sine(0.005)))).silence == pytest.approx(0.5, abs=0.02)
    assert levels(np.concatenate((sine(0.5), sine(0.1)))).silence == 0.0


def test_clipped_samples_are_counted() -> None:
    waveform = sine(0.5)
    waveform[[3, 5]] = 32767, -32768
    assert levels(waveform).clipped == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("samples", [0, 1, 399, 16000])
def test_digital_silence(samples: int) -> None:
    found = levels(np.zeros(samples, np.int16))
    assert (found.level, found.peak, found.silence) == (-math.inf, -math.inf, 1.0)


def test_the_encoder_is_given_normalised_features() -> None:
    features = encoder_input(model_of(), example(), training=False)
    assert features.shape == (98, 80)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=1e-2)


def test_what_is_hidden_is_what_the_bands_say() -> None:
    model = model_of()
    heard = hear(
        model, example(), example(masks=True),
        id="u", text="a", normalised="a", speaker="", tokens=None, epoch=3, kind="test",
    )  # fmt: skip
    expected = np.zeros((98, 80), bool)
    expected[:, 20:40] = True
    expected[49:74] = True  # 73.5 frames round to even
    np.testing.assert_array_equal(heard.hidden, expected)
    np.testing.assert_array_equal(heard.features, heard.augmented)
    assert not heard.waveform_changes
    assert heard.seconds == 1.0
    assert not model.training


def test_a_changed_waveform_is_seen() -> None:
    heard = hear(
        model_of(), example(), example(8000, seed=1),
        id="u", text="a", normalised="a", speaker="", tokens=None, epoch=0, kind="test",
    )  # fmt: skip
    assert heard.waveform_changes
    assert len(heard.features) == 98
    assert len(heard.augmented) == len(heard.hidden) == 48


def test_audio_is_written_bit_for_bit(tmp_path: Path) -> None:
    waveform = example().waveform
    write_audio(tmp_path / "deep" / "u.wav", waveform)
    found, rate = soundfile.read(tmp_path / "deep" / "u.wav", dtype="int16")
    assert rate == 16000
    np.testing.assert_array_equal(found, waveform)
