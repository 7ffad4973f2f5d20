"""Audio files as they come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from allears.audio.files import AudioFile, read
from allears.errors import AudioError

if TYPE_CHECKING:
    from numpy.typing import NDArray

REAL = Path(__file__).parents[2].parent / "shared" / "data"


def noise(samples: int, seed: int = 0) -> NDArray[np.int16]:
    return (np.random.default_rng(seed).standard_normal(samples) * 3000).astype(np.int16)


def rejected(path: Path | str, start: float = 0.0, duration: float | None = None) -> AudioError:
    with pytest.raises(AudioError) as caught:
        read(str(path), start, duration)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(".")
    return caught.value


@pytest.mark.parametrize("suffix", ["wav", "flac", "aiff", "au"])
def test_lossless_16k_is_read_to_the_bit(tmp_path: Path, suffix: str) -> None:
    wanted = noise(16_000)
    soundfile.write(tmp_path / f"a.{suffix}", wanted, 16_000, subtype="PCM_16")
    np.testing.assert_array_equal(read(str(tmp_path / f"a.{suffix}")), wanted)


@pytest.mark.parametrize(("suffix", "subtype"), [("ogg", "VORBIS"), ("mp3", "MPEG_LAYER_III"), ("opus", "OPUS")])
def test_lossy_keeps_length_and_sound(tmp_path: Path, suffix: str, subtype: str) -> None:
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(32_000) / 16_000)).astype(np.int16)
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, tone, 16_000, format="OGG" if suffix != "mp3" else "MP3", subtype=subtype)
    found = read(str(path)).astype(np.float64)
    assert abs(len(found) - 32_000) <= 16
    assert np.argmax(np.abs(np.fft.rfft(found[:16_000]))) == 440


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000])
def test_other_rates_become_16k(tmp_path: Path, rate: int) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(rate) / rate)
    soundfile.write(tmp_path / "a.wav", tone, rate)
    found = read(str(tmp_path / "a.wav"))
    assert found.dtype == np.int16
    assert len(found) == 16_000
    inner = slice(1_000, 15_000)
    wanted = 0.5 * 32_768 * np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)
    np.testing.assert_allclose(found[inner], wanted[inner], atol=4)


def test_channels_are_averaged(tmp_path: Path) -> None:
    left, right = noise(8_000, 1), noise(8_000, 2)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], axis=1), 16_000)
    wanted = np.rint((left.astype(np.float64) + right) / 2)
    np.testing.assert_allclose(read(str(tmp_path / "a.wav")), wanted, atol=0.5)


def test_floats_are_rounded_and_clipped(tmp_path: Path) -> None:
    values = np.array([0.0, 1.5, -1.5, 1.0, -1.0, 0.6 / 32768, 100.4 / 32768] * 1000, dtype=np.float32)
    soundfile.write(tmp_path / "a.wav", values, 16_000, subtype="FLOAT")
    assert read(str(tmp_path / "a.wav"))[:7].tolist() == [0, 32767, -32768, 32767, -32768, 1, 100]


@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_segments_in_any_order_from_one_open_file(tmp_path: Path, suffix: str) -> None:
    whole = noise(48_000)
    soundfile.write(tmp_path / f"a.{suffix}", whole, 16_000)
    with AudioFile(str(tmp_path / f"a.{suffix}")) as file:
        for first, last in [(16_000, 32_000), (0, 16_000), (0, 16_000), (40_000, 48_000), (8_000, 8_160)]:
            found = file.read(first / 16_000, (last - first) / 16_000)
            np.testing.assert_array_equal(found, whole[first:last])
        np.testing.assert_array_equal(file.read(), whole)
        np.testing.assert_array_equal(file.read(2.0), whole[32_000:])


def test_a_segment_may_reach_a_little_past_the_end(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(32_000), 16_000)
    path = str(tmp_path / "a.wav")
    assert len(read(path, 1.5, 0.59)) == 8_000
    assert len(read(path, 1.5, 0.4996)) == 8_000  # rounded to milliseconds by the corpus
    assert len(read(path, 1.5, 0.49)) == 7_840


@pytest.mark.parametrize(
    ("start", "duration"), [(1.5, 0.7), (-0.5, 1.0), (2.5, None), (3.0, 0.01), (0.5, -0.2), (float("nan"), 1.0)]
)
def test_segments_outside_are_rejected(tmp_path: Path, start: float, duration: float | None) -> None:
    soundfile.write(tmp_path / "a.wav", noise(32_000), 16_000)
    assert rejected(tmp_path / "a.wav", start, duration).reason == "segment outside the file"


def test_what_is_no_audio(tmp_path: Path) -> None:
    assert rejected(tmp_path / "none.wav").reason == "missing file"
    (tmp_path / "zero.wav").touch()
    assert rejected(tmp_path / "zero.wav").reason == "empty"
    (tmp_path / "folder.wav").mkdir()
    assert "folder" in str(rejected(tmp_path / "folder.wav"))
    for suffix in ("wav", "flac", "mp3", "ogg"):
        (tmp_path / f"text.{suffix}").write_text("this is a text\n" * 40)
        assert rejected(tmp_path / f"text.{suffix}").reason == "unreadable"
    os.mkfifo(tmp_path / "pipe.wav")
    assert rejected(tmp_path / "pipe.wav").reason == "unreadable"
    assert rejected("a\0b.wav").reason == "unreadable"


def test_a_header_without_samples_is_empty(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(0), 16_000)
    assert rejected(tmp_path / "a.wav").reason == "empty"


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3"])
def test_a_file_that_was_cut_off(tmp_path: Path, suffix: str) -> None:
    soundfile.write(tmp_path / f"a.{suffix}", noise(32_000), 16_000)
    data = (tmp_path / f"a.{suffix}").read_bytes()
    (tmp_path / f"a.{suffix}").write_bytes(data[: len(data) // 2])
    assert rejected(tmp_path / f"a.{suffix}").reason == "unreadable"


def test_a_wav_written_to_a_pipe_is_whole(tmp_path: Path) -> None:
    wanted = noise(16_000)
    soundfile.write(tmp_path / "a.wav", wanted, 16_000)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    place = data.index(b"data") + 4
    data[place : place + 4] = b"\xff\xff\xff\xff"  # as ffmpeg does when it cannot go back
    (tmp_path / "a.wav").write_bytes(data)
    np.testing.assert_array_equal(read(str(tmp_path / "a.wav")), wanted)


@pytest.mark.case("guide B (asked.md #14)")
@pytest.mark.parametrize("value", [0, 7])
def test_constant_samples_are_silence(tmp_path: Path, value: int) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(8_000, value, dtype=np.int16), 8_000)
    assert rejected(tmp_path / "a.wav").reason == "digitally silent"


def test_channels_that_cancel_and_floats_below_one_step_are_silence(tmp_path: Path) -> None:
    left = noise(8_000)
    soundfile.write(tmp_path / "a.wav", np.stack([left, -left], axis=1), 16_000)
    assert rejected(tmp_path / "a.wav").reason == "digitally silent"
    tiny = np.random.default_rng(0).uniform(-1e-6, 1e-6, 8_000)
    soundfile.write(tmp_path / "b.wav", tiny, 16_000, subtype="FLOAT")
    assert rejected(tmp_path / "b.wav").reason == "digitally silent"


def test_samples_that_are_no_numbers(tmp_path: Path) -> None:
    values = np.zeros(8_000, dtype=np.float32)
    values[5], values[6] = np.nan, np.inf
    soundfile.write(tmp_path / "a.wav", values, 16_000, subtype="FLOAT")
    assert rejected(tmp_path / "a.wav").reason == "unreadable"


@pytest.mark.skipif(not REAL.is_dir(), reason="the folder of real speech is not beside the repository")
@pytest.mark.parametrize("corpus", ["fsdd", "aishell_sample", "ljspeech_mini"])
def test_real_speech(corpus: str) -> None:
    for path in sorted((REAL / corpus / "audio").iterdir())[:5]:
        about = soundfile.info(path)
        assert abs(len(read(str(path))) - about.frames * 16_000 / about.samplerate) <= 1


def in_blocks(path: Path | str) -> NDArray[np.int16]:
    with AudioFile(str(path)) as file:
        return np.concatenate([np.zeros(0, dtype=np.int16), *file.blocks()])


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT"])
def test_blocks_are_the_whole_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: int, channels: int, subtype: str
) -> None:
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (50_021, channels))
    soundfile.write(tmp_path / "a.wav", samples, rate, subtype=subtype)
    whole = read(str(tmp_path / "a.wav"))
    monkeypatch.setattr("allears.audio.files._BLOCK", 4099)
    np.testing.assert_array_equal(in_blocks(tmp_path / "a.wav"), whole)


def test_blocks_of_silence_are_silence(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(44_100, dtype=np.int16), 44_100)
    assert in_blocks(tmp_path / "a.wav").tolist() == [0] * 16_000


def test_blocks_come_before_the_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, noise(32_000), 16_000)
    path.write_bytes(path.read_bytes()[: 44 + 16_000 * 2])
    with AudioFile(str(path)) as file:
        blocks = file.blocks()
        np.testing.assert_array_equal(next(blocks), noise(32_000)[:16_000])
        with pytest.raises(AudioError, match=r"cut off: 1\.00 of 2\.00 s"):
            next(blocks)


def test_blocks_of_nothing_are_an_error(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(0, dtype=np.int16), 16_000)
    with pytest.raises(AudioError, match="has no samples"):
        in_blocks(tmp_path / "a.wav")


@pytest.mark.parametrize("rate", [1, 999])
def test_a_rate_that_holds_no_speech_is_refused(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", np.arange(1000, dtype=np.int16), rate)
    with pytest.raises(AudioError, match=rf"a\.wav has {rate} samples? a second, .*1000 or more"):
        read(str(tmp_path / "a.wav"))
