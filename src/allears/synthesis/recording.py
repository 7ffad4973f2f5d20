"""One utterance from its order to its FLAC file: speak, resample, level, surround with silence, add noise, write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import soundfile
import soxr

from allears.files import PARTIAL
from allears.seeding import generator
from allears.synthesis.espeak import ESPEAK_RATE
from allears.synthesis.noise import at_ratio, babble, coloured, power
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.synthesis.voicebox import Voicebox
    from allears.synthesis.voices import Speaker

HIGHEST_PEAK = 0.95
"""Of full scale; a louder mixture is turned down as a whole, which keeps its signal-to-noise ratio."""


@dataclass(frozen=True, slots=True)
class Order:
    """Everything that an utterance's file depends on.

    Attributes:
        id: unique in the corpus; the stem of the file.
        text: what is said.
        speaker: who says it.
        level_db: root mean square of the speech, in decibels of full scale.
        before: silence in front, in seconds.
        after: silence behind, in seconds.
        noise: a kind of `allears.synthesis.noise.KINDS`, or empty.
        snr_db: power of the speech, silence in front and behind not counted, over power of the noise, in decibels.
        seed: for the noise.
    """

    id: str
    text: str
    speaker: Speaker
    level_db: float = -25.0
    before: float = 0.2
    after: float = 0.2
    noise: str = ""
    snr_db: float = 0.0
    seed: int = 0


def spoken(voicebox: Voicebox, text: str, speaker: Speaker) -> NDArray[np.float32]:
    """``text`` at 16 kHz, full scale 1 [samples]."""
    pcm = voicebox.pcm(text, speaker.voice, speaker.pitch, speaker.rate, speaker.seed)
    raw = np.frombuffer(pcm, dtype=np.int16)
    # In floating point: soxr dithers int16 output.
    resampled: NDArray[np.float32] = soxr.resample(raw / np.float32(32768), ESPEAK_RATE, SAMPLE_RATE, quality="HQ")
    return resampled


def rounded(signal: NDArray[np.float32]) -> NDArray[np.int16]:
    """``signal`` [samples] with full scale 1 as int16."""
    return np.clip(np.rint(signal * 32768), -32768, 32767).astype(np.int16)


def babble_bank(voicebox: Voicebox, sentences: list[tuple[str, Speaker]]) -> NDArray[np.float32]:
    """Sentences one after the other, at equal power [samples]: what babble is cut from."""
    parts = [spoken(voicebox, text, speaker) for text, speaker in sentences]
    return np.concatenate([part / np.float32(np.sqrt(power(part))) for part in parts])


def mixture(order: Order, speech: NDArray[np.float32], bank: NDArray[np.float32]) -> NDArray[np.int16]:
    """The finished recording [samples] of ``speech`` [speech samples]."""
    gain = 10.0 ** (order.level_db / 20.0) / np.sqrt(power(speech))
    levelled = speech * np.float32(gain)
    silences = round(order.before * SAMPLE_RATE), round(order.after * SAMPLE_RATE)
    whole = np.pad(levelled, silences)
    if order.noise:
        draw = generator(order.seed)
        samples = len(whole)
        noise = babble(bank, samples, draw) if order.noise == "babble" else coloured(order.noise, samples, draw)
        whole += at_ratio(noise, power(levelled), order.snr_db)
    peak = float(np.abs(whole).max())
    return rounded(whole * np.float32(min(1.0, HIGHEST_PEAK / peak)))


def intact_frames(path: Path) -> int:
    """Samples of a FLAC file that is there and decodes to its end; else 0."""
    try:
        samples, rate = soundfile.read(path, dtype="int16")
        promised = soundfile.info(path).frames
    except (OSError, soundfile.LibsndfileError):
        return 0
    return promised if rate == SAMPLE_RATE and len(samples) == promised else 0


def record(voicebox: Voicebox, order: Order, bank: NDArray[np.float32], folder: Path) -> int:
    """Make the file of ``order`` in ``folder`` unless it is there; return its samples.

    The file is renamed into place whole. Its name beside is this process's own, so that a process that is just being
    killed cannot spoil it. It is flushed to disk later, with all others: see `allears.synthesis.corpus`.
    """
    path = folder / f"{order.id}.flac"
    frames = intact_frames(path)
    if frames:
        return frames
    samples = mixture(order, spoken(voicebox, order.text, order.speaker), bank)
    beside = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    soundfile.write(beside, samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16", compression_level=0.2)
    beside.replace(path)
    return len(samples)
