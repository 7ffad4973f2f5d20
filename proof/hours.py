"""Ten hours of different clips of real speech, for rows about speed: windows of what a small corpus holds."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import soundfile

RATE = 16_000
SPREAD = 0.5  # sigma of the logarithm of the lengths


def stream(corpus: Path) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """All of a corpus, one file after another."""
    return np.concatenate([soundfile.read(path, dtype="int16")[0] for path in sorted(corpus.rglob("*.flac"))])


def clips(hours: float, seconds: float, longest: float = 30.0) -> list[float]:
    """Lengths in seconds: log-normal about a mean of ``seconds``, ``hours`` together."""
    draw = np.random.default_rng(0).normal(0.0, SPREAD, round(hours * 3600 / seconds))
    lengths = np.exp(draw).clip(0.2, 4.0)
    return [float(length) for length in np.minimum(lengths * (seconds / lengths.mean()), longest)]


def write(corpus: Path, out: Path, numbers: range, lengths: list[float], ending: str) -> None:
    """Write the clips with ``numbers``; each begins somewhere else in the stream."""
    samples = stream(corpus)
    for number, seconds in zip(numbers, lengths, strict=True):
        count = round(seconds * RATE)
        begin = int(np.random.default_rng(number).integers(0, len(samples) - count))
        soundfile.write(out / f"clip-{number:06d}.{ending}", samples[begin : begin + count], RATE, subtype="PCM_16")


def main() -> None:
    """``python -m proof.hours CORPUS OUT``: the clips and a list of ``path<TAB>text``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--ending", default="flac")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    lengths = clips(chosen.hours, chosen.seconds)
    parts = [range(begin, min(begin + 200, len(lengths))) for begin in range(0, len(lengths), 200)]
    with ProcessPoolExecutor() as pool:
        tasks = [
            pool.submit(write, chosen.corpus, chosen.out, part, lengths[part.start : part.stop], chosen.ending)
            for part in parts
        ]
        for task in tasks:
            task.result()
    lines = (f"clip-{n:06d}.{chosen.ending}\tclip number {n}\n" for n in range(len(lengths)))
    (chosen.out / "all.tsv").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
