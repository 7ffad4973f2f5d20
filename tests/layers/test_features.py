from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from allears.layers.features import BINS, KaldiFbank, frame_count, normalised

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "features.npz"
SIGNALS = ("chirp", "noise", "silence", "digit8k")

golden = pytest.mark.skipif(not GOLDEN.exists(), reason=f"the reference features are not at {GOLDEN}")


def features(samples: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Features of one waveform of int16 scale."""
    found: torch.Tensor = KaldiFbank()(torch.from_numpy(samples)[None], torch.tensor([len(samples)]))[0]
    return np.asarray(found[0])


def speechlike(samples: int, seed: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    draw = np.random.default_rng(seed)
    loud = np.sin(np.arange(samples) / 900) ** 2
    return np.asarray(draw.normal(0, 2000, samples) * loud + 3000 * np.sin(np.arange(samples) * 0.1), dtype=np.int16)


def batched(waveforms: list[np.ndarray[Any, np.dtype[np.int16]]]) -> tuple[torch.Tensor, torch.Tensor]:
    padded = np.zeros((len(waveforms), max(len(waveform) for waveform in waveforms)), dtype=np.int16)
    for row, waveform in zip(padded, waveforms, strict=True):
        row[: len(waveform)] = waveform
    return torch.from_numpy(padded), torch.tensor([len(waveform) for waveform in waveforms])


@golden
@pytest.mark.parametrize("signal", SIGNALS)
def test_features_are_those_of_the_reference(signal: str) -> None:
    """Bands that hold only the rounding noise of the FFT are left out: each processor has a noise of its own."""
    with np.load(GOLDEN) as reference:
        wanted = reference[f"{signal}.kaldi_fbank80"]
        found = features(reference[f"{signal}.resampled16k"].ravel().astype(np.float32) * 32768)
    assert found.shape == wanted.shape
    energy = np.exp(wanted)
    heard = energy > 1e-6 * energy.max(axis=1, keepdims=True)
    assert heard.sum(axis=1).min() >= 5
    assert np.abs(found - wanted)[heard].max() < 1e-3


@golden
@pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="other vector units round otherwise"
)
def test_features_are_those_of_the_reference_to_the_noise_where_the_fft_is_the_same() -> None:
    """MKL's portable code, which the reference was made with, is chosen when a process starts."""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this torch has no MKL")
    code = f"""
import numpy, torch
from allears.layers.features import KaldiFbank
reference = numpy.load({str(GOLDEN)!r})
for signal in {SIGNALS!r}:
    samples = torch.from_numpy(reference[f"{{signal}}.resampled16k"].ravel().astype("float32") * 32768)
    found = KaldiFbank()(samples[None], torch.tensor([len(samples)]))[0][0].numpy()
    print(abs(found - reference[f"{{signal}}.kaldi_fbank80"]).max())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"},
    )
    errors = [float(line) for line in done.stdout.split()]
    assert len(errors) == len(SIGNALS)
    assert max(errors) < 1e-3


def test_padding_never_touches_a_real_frame() -> None:
    waveforms = [speechlike(samples, samples) for samples in (16000, 400, 9999, 559, 560, 3)]
    together, lengths = KaldiFbank()(*batched(waveforms))
    assert lengths.tolist() == [98, 1, 60, 1, 2, 0]
    scaled = normalised(together, lengths)
    for row, (waveform, length) in enumerate(zip(waveforms, lengths.tolist(), strict=True)):
        alone, one = KaldiFbank()(*batched([waveform]))
        assert one.tolist() == [length]
        # A product with one row is added in another order: the last bit may differ.
        torch.testing.assert_close(together[row, :length], alone[0, :length], atol=1e-6, rtol=2.4e-7)
        assert not together[row, length:].any()
        torch.testing.assert_close(scaled[row, :length], normalised(alone, one)[0, :length], atol=1e-5, rtol=0)
        assert not scaled[row, length:].any()


def test_int16_and_float_waveforms_of_the_same_numbers_give_the_same_features() -> None:
    samples = speechlike(8000, 1)
    assert np.array_equal(features(samples), features(samples.astype(np.float32)))


def test_frames_are_whole_windows() -> None:
    counts = frame_count(np.arange(2001))
    for samples in (0, 1, 399, 400, 559, 560, 719, 720, 2000):
        _, lengths = KaldiFbank()(torch.ones(1, samples, dtype=torch.int16), torch.tensor([samples]))
        assert lengths.tolist() == [counts[samples]]
    assert counts[[399, 400, 559, 560]].tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("samples", [0, 1, 399])
def test_audio_shorter_than_a_window_has_no_frame(samples: int) -> None:
    found, lengths = KaldiFbank()(torch.ones(1, samples, dtype=torch.int16), torch.tensor([samples]))
    assert lengths.tolist() == [0]
    assert not found.any()
    assert not normalised(found, lengths).any()


def test_a_band_has_mean_zero_and_deviation_one_over_the_real_frames() -> None:
    found, lengths = KaldiFbank()(*batched([speechlike(16000, 2), speechlike(9000, 3)]))
    scaled = normalised(found, lengths)
    for row, length in enumerate(lengths.tolist()):
        real = scaled[row, :length]
        assert real.mean(dim=0).abs().max() < 1e-4
        assert (real.square().mean(dim=0) - 1).abs().max() < 1e-4


@pytest.mark.parametrize("level", [0, 1, -500])
def test_digital_silence_becomes_zeros(level: int) -> None:
    silence = np.full(8000, level, dtype=np.int16)
    found, lengths = KaldiFbank()(*batched([silence, speechlike(16000, 4)]))
    scaled = normalised(found, lengths)
    assert scaled.isfinite().all()
    assert not scaled[0].any()
    assert scaled[1].abs().max() > 1


def test_autocast_does_not_reach_the_features() -> None:
    waveforms, lengths = batched([speechlike(8000, 5)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = KaldiFbank()(waveforms, lengths)[0]
    outside = KaldiFbank()(waveforms, lengths)[0]
    assert inside.dtype == torch.float32
    assert inside.shape[2] == BINS
    assert torch.equal(inside, outside)
