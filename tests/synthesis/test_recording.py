from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from allears.synthesis.noise import KINDS, power
from allears.synthesis.recording import HIGHEST_PEAK, Order, babble_bank, intact_frames, mixture, record, spoken
from allears.synthesis.voicebox import Voicebox
from allears.synthesis.voices import Speaker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

SPEAKER = Speaker("train-0000", "en-us", "m1", 50, 160, 7)
TEXT = "please lock the kitchen window"


@pytest.fixture(scope="module")
def voicebox() -> Iterator[Voicebox]:
    with Voicebox() as box:
        yield box


@pytest.fixture(scope="module")
def speech(voicebox: Voicebox) -> NDArray[np.float32]:
    return spoken(voicebox, TEXT, SPEAKER)


@pytest.fixture(scope="module")
def bank(voicebox: Voicebox) -> NDArray[np.float32]:
    return babble_bank(voicebox, [("open the door", SPEAKER), ("what is the weather today", SPEAKER)])


def test_a_clean_recording(speech: NDArray[np.float32], bank: NDArray[np.float32]) -> None:
    clean = mixture(Order("x", TEXT, SPEAKER, level_db=-26.0, before=0.1, after=0.25), speech, bank)
    assert len(clean) == len(speech) + 1600 + 4000
    assert not clean[:1600].any()
    assert not clean[-4000:].any()
    level = 10 * np.log10(power(clean[1600:-4000].astype(np.float32))) - 20 * np.log10(32768)
    assert level == pytest.approx(-26.0, abs=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_noise_lies_where_it_was_asked(
    kind: str, snr_db: float, speech: NDArray[np.float32], bank: NDArray[np.float32]
) -> None:
    clean = mixture(Order("x", TEXT, SPEAKER), speech, bank).astype(np.float32)
    noisy = mixture(Order("x", TEXT, SPEAKER, noise=kind, snr_db=snr_db, seed=3), speech, bank).astype(np.float32)
    measured = 10 * np.log10(power(clean[3200:-3200]) / power(noisy - clean))
    assert measured == pytest.approx(snr_db, abs=0.1)
    assert noisy[:3200].any(), "noise must not begin with the speech"


def test_a_loud_recording_is_turned_down_not_clipped(speech: NDArray[np.float32], bank: NDArray[np.float32]) -> None:
    loud = mixture(Order("x", TEXT, SPEAKER, level_db=0.0), speech, bank)
    assert np.abs(loud.astype(np.int32)).max() == round(HIGHEST_PEAK * 32768)


def test_a_file_that_is_there_is_not_made_again(voicebox: Voicebox, bank: NDArray[np.float32], tmp_path: Path) -> None:
    order = Order("x", TEXT, SPEAKER)
    frames = record(voicebox, order, bank, tmp_path)
    path = tmp_path / "x.flac"
    made = path.stat()
    data = path.read_bytes()
    assert record(voicebox, order, bank, tmp_path) == frames == soundfile.info(path).frames
    assert path.stat().st_mtime_ns == made.st_mtime_ns
    assert soundfile.info(path).samplerate == 16_000
    assert list(tmp_path.iterdir()) == [path]

    path.write_bytes(data[: len(data) // 2])
    assert intact_frames(path) == 0
    assert record(voicebox, order, bank, tmp_path) == frames
    assert path.read_bytes() == data


@pytest.mark.parametrize("damage", ["empty", "half", "zeros", "text"])
def test_a_damaged_file_is_not_taken_for_whole(
    damage: str, voicebox: Voicebox, bank: NDArray[np.float32], tmp_path: Path
) -> None:
    record(voicebox, Order("x", TEXT, SPEAKER), bank, tmp_path)
    path = tmp_path / "x.flac"
    data = path.read_bytes()
    assert intact_frames(path) > 0
    half = len(data) // 2
    path.write_bytes(
        {"empty": b"", "half": data[:half], "zeros": data[:half] + bytes(len(data) - half), "text": b"no audio"}[damage]
    )
    assert intact_frames(path) == 0
