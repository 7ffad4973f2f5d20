from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from allears.errors import SettingsError
from allears.layers.features import FeatureSettings, Frontend

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "features.npz"
SIGNALS = ("chirp", "noise", "silence", "digit8k")
KINDS = get_args(FeatureSettings.model_fields["kind"].annotation)
NORMALISATIONS = get_args(FeatureSettings.model_fields["normalisation"].annotation)
REFERENCES = {  # our settings → the reference's name
    ("kaldi_fbank", "none"): "kaldi_fbank80",
    ("log_mel_400_160", "none"): "log_mel_400_160",
    ("log_mel_1024_256", "utterance_scalar"): "log_mel_1024_256",
}

golden = pytest.mark.skipif(not GOLDEN.exists(), reason=f"the reference features are not at {GOLDEN}")


def frontend(kind: str, normalisation: str) -> Frontend:
    made = FeatureSettings.model_validate({"kind": kind, "normalisation": normalisation}).build()
    made.set_statistics(torch.linspace(5, 15, 80), torch.linspace(2, 4, 80))
    return made


def speechlike(samples: int, seed: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    draw = np.random.default_rng(seed)
    loud = np.sin(np.arange(samples) / 900) ** 2
    return np.asarray(draw.normal(0, 2000, samples) * loud + 3000 * np.sin(np.arange(samples) * 0.1), dtype=np.int16)


def batched(waveforms: list[np.ndarray[Any, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = [torch.from_numpy(waveform) for waveform in waveforms]
    padded = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)
    return padded, torch.tensor([len(waveform) for waveform in waveforms])


def compared(only_what_sounds: bool, device: str = "cpu") -> Iterator[tuple[str, float]]:
    """(what, the greatest difference from the reference) of each signal, alone and in a batch with the others.

    Args:
        only_what_sounds: leave out bands below 1e-6 of the frame's greatest, which hold rounding noise of the FFT.
        device: where the features are made.
    """
    with np.load(GOLDEN) as reference:
        waveforms = [reference[f"{signal}.resampled16k"].ravel().astype(np.float32) * 32768 for signal in SIGNALS]
        for (kind, normalisation), name in REFERENCES.items():
            made = frontend(kind, normalisation).to(device)
            together, _ = made(*(tensor.to(device) for tensor in batched(waveforms)))
            for row, (signal, waveform) in enumerate(zip(SIGNALS, waveforms, strict=True)):
                wanted = torch.from_numpy(reference[f"{signal}.{name}"])
                wanted = wanted if kind == "kaldi_fbank" else wanted.T
                if (signal, normalisation) == ("silence", "utterance_scalar"):
                    wanted = torch.zeros_like(wanted)  # the reference's are rounding noise over a deviation near 0
                single = [tensor.to(device) for tensor in batched([waveform])]
                energies = made.extract(*single)[0][0].exp().cpu()
                heard = energies >= (1e-6 if only_what_sounds else 0) * energies.amax(dim=1, keepdim=True)
                assert heard.sum(dim=1).min() >= 3
                alone, lengths = made(*single)
                assert lengths.tolist() == [len(wanted)] == [alone.shape[1]]
                for found in (alone[0], together[row, : len(wanted)]):
                    yield f"{signal} {name}", (found.cpu() - wanted)[heard].abs().max().item()


@golden
def test_features_are_those_of_the_reference() -> None:
    found = list(compared(only_what_sounds=True))
    assert len(found) == 2 * len(SIGNALS) * len(REFERENCES)
    assert [(what, error) for what, error in found if not error < 1e-3] == []


@golden
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_features_of_a_gpu_are_those_of_the_reference_with_tf32_allowed() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        found = list(compared(only_what_sounds=True, device="cuda"))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert [(what, error) for what, error in found if not error < 1e-3] == []


@golden
@pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="other vector units round otherwise"
)
def test_features_are_those_of_the_reference_to_the_noise_where_the_fft_is_the_same() -> None:
    """The reference was made with MKL's portable FFT, which can only be chosen for a whole process, at its start."""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this torch has no MKL")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_features as t\n"
        "for what, error in t.compared(only_what_sounds=False): print(error, what)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"},
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(SIGNALS) * len(REFERENCES)
    assert [line for line in lines if not float(line.split()[0]) < 1e-5] == []


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_utterance_has_the_same_features_alone_and_in_any_batch(kind: str, normalisation: str) -> None:
    """Over 512 frames, just one, fewer than a window, none; in any place of a batch and before any padding."""
    made = frontend(kind, normalisation)
    waveforms = [speechlike(samples, samples) for samples in (90000, 16000, 400, 9999, 559, 512, 201, 3, 1, 0)]
    padded, samples = batched(waveforms)
    together, lengths = made(padded, samples)
    assert together.dtype == torch.float32
    assert lengths.dtype == torch.int64
    louder = torch.nn.functional.pad(padded, (0, 777), value=30000)  # what lies behind an utterance does not matter
    for row, length in enumerate(samples.tolist()):
        louder[row, length:] = 30000
    assert torch.equal(made(louder, samples)[0][:, : together.shape[1]], together)
    for row, (waveform, length) in enumerate(zip(waveforms, lengths.tolist(), strict=True)):
        alone, one = made(*batched([waveform]))
        assert one.tolist() == [length]
        torch.testing.assert_close(together[row, :length], alone[0, :length], atol=2e-6, rtol=2.4e-7)
        assert not together[row, length:].any()
        assert not alone[0, length:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_settings_foretell_the_number_of_frames(kind: str) -> None:
    settings = FeatureSettings.model_validate({"kind": kind, "normalisation": "none"})
    samples = np.array([0, 1, 2, 159, 160, 161, 255, 256, 257, 399, 400, 511, 512, 559, 560, 719, 720, 2000])
    counts = settings.frames(samples)
    assert counts.dtype == np.int64
    for count, length in zip(counts.tolist(), samples.tolist(), strict=True):
        features, lengths = settings.build()(torch.ones(1, length, dtype=torch.int16), torch.tensor([length]))
        assert lengths.tolist() == [count]
        assert features.shape[2] == settings.bins == 80
        assert features.shape[1] >= count


@pytest.mark.case("guide B (asked.md #14)")
@pytest.mark.parametrize("normalisation", ["utterance", "utterance_scalar"])
@pytest.mark.parametrize("level", [0, 1, -500])
@pytest.mark.parametrize("kind", KINDS)
def test_digital_silence_becomes_zeros(kind: str, level: int, normalisation: str) -> None:
    """In Kaldi's features a constant is silence too; elsewhere it is one tone of 0 Hz, the same in each frame."""
    silence = np.full(8000, level, dtype=np.int16)
    found, _ = frontend(kind, normalisation)(*batched([silence, speechlike(16000, 4)]))
    assert found.isfinite().all()
    if kind == "kaldi_fbank" or level == 0 or normalisation == "utterance":
        assert not found[0].any()
    assert found[1].abs().max() > 1


@pytest.mark.parametrize("kind", KINDS)
def test_int16_and_float_waveforms_of_the_same_numbers_give_the_same_features(kind: str) -> None:
    samples = speechlike(8000, 1)
    made = frontend(kind, "none")
    assert torch.equal(made(*batched([samples]))[0], made(*batched([samples.astype(np.float32)]))[0])


class Products(TorchFunctionMode):
    """Notes the types of what is multiplied: float32 products may round to bfloat16 or TF32, by a global switch."""

    def __init__(self) -> None:
        super().__init__()
        self.types: list[torch.dtype] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(word in func.__name__ for word in ("mm", "matmul", "mv", "dot", "conv", "linear", "einsum")):
            self.types += [value.dtype for value in args if isinstance(value, torch.Tensor)]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_neither_autocast_nor_fast_products_nor_a_cast_model_reach_the_features(kind: str, normalisation: str) -> None:
    waveforms, lengths = batched([speechlike(8000, 5), speechlike(5000, 6)])
    made = frontend(kind, normalisation)
    with Products() as products:
        outside = made(waveforms, lengths)[0]
    assert set(products.types) == {torch.float64}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = made(waveforms, lengths)[0]
    cast = made.bfloat16()(waveforms, lengths)[0]
    assert inside.dtype == cast.dtype == torch.float32
    assert torch.equal(inside, outside)
    assert torch.equal(cast, outside)


def test_only_global_statistics_are_saved_and_they_must_be_there() -> None:
    for normalisation in NORMALISATIONS:
        made = FeatureSettings.model_validate({"normalisation": normalisation}).build()
        assert made.lacks_statistics() == (normalisation == "global")
        assert bool(made.state_dict()) == (normalisation == "global")
    waveforms, lengths = batched([speechlike(8000, 7)])
    made = FeatureSettings(normalisation="global").build()
    with pytest.raises(SettingsError, match="normalisation is 'global'"):
        made(waveforms, lengths)
    known = frontend("kaldi_fbank", "global")
    made.load_state_dict(known.state_dict())
    assert not made.lacks_statistics()
    assert torch.equal(made(waveforms, lengths)[0], known(waveforms, lengths)[0])


def test_global_statistics_give_the_bands_they_were_taken_from_mean_zero_and_deviation_one() -> None:
    waveforms, lengths = batched([speechlike(30000, 8), speechlike(20000, 9)])
    made = FeatureSettings(normalisation="global").build()
    raw, frames = made.extract(waveforms, lengths)
    real = torch.cat([raw[row, :length] for row, length in enumerate(frames.tolist())])
    made.set_statistics(real.mean(dim=0), real.std(dim=0, correction=0))
    found = made(waveforms, lengths)[0]
    scaled = torch.cat([found[row, :length] for row, length in enumerate(frames.tolist())])
    assert scaled.mean(dim=0).abs().max() < 1e-4
    assert (scaled.square().mean(dim=0) - 1).abs().max() < 1e-4


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_what_is_hidden_gets_the_mean(normalisation: str) -> None:
    """Of the utterance where nothing is normalised, else 0."""
    made = frontend("kaldi_fbank", normalisation)
    features, lengths = made(*batched([speechlike(16000, 10), speechlike(7000, 11)]))
    fill = made.hiding_value(features, lengths)
    if normalisation != "none":
        assert fill == 0
        return
    assert isinstance(fill, torch.Tensor)
    for row, length in enumerate(lengths.tolist()):
        assert fill[row].item() == pytest.approx(features[row, :length].mean().item(), rel=1e-5)
    assert fill.min() > 1
