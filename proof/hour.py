"""``python -m proof.hour CORPUS OUT``: one file of an hour from the utterances of a corpus, with short pauses."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import soundfile

SECONDS = 3600
RATE = 16_000


def main() -> None:
    """Write block by block."""
    corpus, out = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted(corpus.rglob("*.flac"))
    written = 0
    with soundfile.SoundFile(out, "w", RATE, 1, "PCM_16") as whole:
        for path in itertools.cycle(files):
            samples, _ = soundfile.read(path, dtype="int16")
            block = np.concatenate((samples, np.zeros(RATE // 2, dtype=np.int16)))[: SECONDS * RATE - written]
            whole.write(block)
            written += len(block)
            if written >= SECONDS * RATE:
                break


main()
