from __future__ import annotations

import numpy as np
import pytest
import torch

from allears.layers.log_mel import LogMel

KINDS = pytest.mark.parametrize("made", [LogMel(400, 160, added=1e-9), LogMel(1024, 256, least=1e-5)])


@KINDS
@pytest.mark.parametrize("samples", [1, 2, 3, 90, 201, 513, 5000])
def test_each_end_is_reflected_however_short_the_utterance(made: LogMel, samples: int) -> None:
    draw = np.random.default_rng(samples)
    waveform = draw.normal(0, 5000, samples).astype(np.int16)
    margin = made.fft // 2
    batch = torch.nn.functional.pad(torch.from_numpy(waveform), (0, 100))[None].repeat(3, 1)
    found = made.extended(batch, torch.tensor([samples, samples + 100, 0]))
    wanted = np.pad(waveform, margin, mode="reflect")
    assert np.array_equal(found[0, : len(wanted)].numpy(), wanted)
    assert made(batch[:1], torch.tensor([samples]))[0].isfinite().all()


@KINDS
def test_frames_are_those_of_torchs_transform(made: LogMel) -> None:
    waveform = torch.from_numpy(np.random.default_rng(1).normal(0, 0.1, 20000).astype(np.float32))
    spectrum = torch.stft(
        waveform, made.fft, made.hop, window=torch.hann_window(made.fft), pad_mode="reflect", return_complex=True
    )
    energies = (spectrum.abs().double().square().T @ made.bands).float()
    wanted = (energies + made.added).clamp_min(made.least).log()
    found, lengths = made(waveform[None] * 32768, torch.tensor([20000]))
    assert lengths.tolist() == [len(wanted)] == [1 + 20000 // made.hop]
    torch.testing.assert_close(found[0], wanted, atol=1e-4, rtol=0)


@KINDS
def test_silence_is_the_logarithm_of_the_least_energy(made: LogMel) -> None:
    found, _ = made(torch.zeros(1, 4000, dtype=torch.int16), torch.tensor([4000]))
    assert found.unique().tolist() == pytest.approx([np.log(max(made.added, made.least))])


@KINDS
@pytest.mark.parametrize("hertz", [300.0, 1000.0, 3400.0, 7000.0])
def test_a_tone_is_heard_in_the_band_of_its_pitch(made: LogMel, hertz: float) -> None:
    tone = 8000 * np.sin(2 * np.pi * hertz * np.arange(8000) / 16000)
    found, _ = made(torch.from_numpy(tone.astype(np.int16))[None], torch.tensor([8000]))
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 82)[1:-1]
    assert abs(int(found[0, 10].argmax()) - int(np.argmin(abs(mels - 2595 * np.log10(1 + hertz / 700))))) <= 1
