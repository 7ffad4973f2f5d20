"""Small corpora of tones: each word is a tone of its own, so that a few steps of training show in the loss."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: threads of tests that share cores wait for each other

import numpy as np
import pytest
import soundfile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORDS = {"low": 300.0, "mid": 700.0, "high": 1500.0, "top": 3000.0}  # Hz
SHARED = Path(__file__).parent.parent.parent / "shared"


def tone(text: str, seed: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """0.4 s of tone for each word of ``text``, with some noise."""
    draw = np.random.default_rng(seed)
    time = np.arange(6400) / 16000
    waves = [np.sin(2 * np.pi * WORDS[word] * time + draw.random() * 6) for word in text.split()]
    samples = np.concatenate(waves) * 8000 + draw.normal(0, 200, 6400 * len(waves))
    return samples.astype(np.int16)


def write_corpus(folder: Path, utterances: int, seed: int = 0, words: tuple[int, int] = (1, 6)) -> Path:
    """A corpus of ``path<TAB>text`` lines with ``utterances`` tones of ``words`` (from, to) words."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(utterances):
        text = " ".join(draw.choice(list(WORDS), draw.integers(words[0], words[1] + 1)))
        soundfile.write(folder / f"u{number:04d}.wav", tone(text, number), 16000)
        lines.append(f"u{number:04d}.wav\t{text}\n")
    (folder / "list.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def allears(*arguments: object, fails: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own and check its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "allears", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert (done.returncode != 0) == fails, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="session")
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """See `allears`."""
    return allears


def prepared(folder: Path, utterances: int, **how: Any) -> Path:
    """A dataset of tones in ``folder``."""
    from allears.corpora.find import find
    from allears.shards.prepare import Corpus, prepare

    place = write_corpus(folder / "corpus", utterances, **how)
    found = find(place / "list.tsv", None)
    prepare(Corpus(place, found.layout, found.utterances, found.rejections), folder / "dataset", processes=1)
    return folder / "dataset"


@pytest.fixture(scope="session")
def make_dataset() -> Callable[..., Path]:
    """See `prepared`."""
    return prepared


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 utterances of tones, 0.4 to 2.4 s."""
    return prepared(tmp_path_factory.mktemp("tones"), 160)


SMALL: Sequence[str] = (
    "plan.step_seconds=24",
    "plan.micro_batches=4",
    "tokenizer.pieces=16",
    "model.encoder.width=32",
    "model.encoder.blocks=2",
    "optimizer.learning_rate.value=1e-3",
)
"""Overrides that make a model which trains in seconds."""


@pytest.fixture(scope="session")
def small() -> Sequence[str]:
    """See `SMALL`."""
    return SMALL
