"""Decoding and encoding alone, the limit of a preparation: ``python -m proof.alone CORPUS --encoding flac``."""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import soundfile

from allears.audio.decode import encode


def one(path: Path, encoding: str) -> int:
    """Samples of a file that is decoded and encoded again."""
    samples, _ = soundfile.read(path, dtype="int16")
    encode(samples, encoding)
    return len(samples)


def main() -> None:
    """Print seconds and samples as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--encoding", default="pcm16")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    paths = sorted(chosen.corpus.glob("*.flac"))
    with ProcessPoolExecutor(chosen.processes) as pool:
        list(pool.map(len, [""] * chosen.processes))  # they have started
        began = time.perf_counter()
        samples = sum(pool.map(partial(one, encoding=chosen.encoding), paths, chunksize=50))
        seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "samples": samples}))


if __name__ == "__main__":
    main()
