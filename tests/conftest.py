"""Small corpora of tones: each word is a tone of its own, so that a few steps of training show in the loss."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: threads of tests that share cores wait for each other

import numpy as np
import pytest
import soundfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


class CommandLine:
    """Runs command lines, each in a process of its own (see ``forked.py``), and checks their exit codes."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._said = {"stdout": folder / "stdout", "stderr": folder / "stderr"}

    def __call__(self, *arguments: object, fails: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        request = {
            "arguments": [*map(str, arguments)],
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", **environment},
            "folder": str(Path.cwd()),
            **{name: str(path) for name, path in self._said.items()},
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(request), file=self._server.stdin, flush=True)
        code = int(self._server.stdout.readline())
        done = subprocess.CompletedProcess(
            [*map(str, arguments)], code, *(path.read_text() for path in self._said.values())
        )
        assert (code != 0) == fails, f"exit {code}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """See `CommandLine`."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).parent / "forked.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as server:
        yield CommandLine(server, tmp_path_factory.mktemp("said"))


@contextlib.contextmanager
def trained_until(dataset: Path, run: Path, *more: object) -> Iterator[Training]:
    """A training that is not waited for, killed with SIGKILL at the end of the block."""
    with run.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "allears", "train", "tiny", f"dataset={dataset}", "--out", run, *map(str, more)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            yield Training(run, process)
        finally:
            process.kill()
            process.wait()


class Training:
    """A training in the background; what it says on stderr is in `said`."""

    def __init__(self, run: Path, process: subprocess.Popen[str]) -> None:
        self.run = run
        self.process = process

    def said(self) -> str:
        return self.run.with_suffix(".log").read_text()

    def steps(self) -> int:
        """How many steps its metrics hold."""
        metrics = self.run / "metrics.jsonl"
        return sum('"loss"' in line for line in metrics.read_text().splitlines()) if metrics.exists() else 0

    def wait_until(self, reached: Callable[[], object], pause: float = 0.02) -> None:
        deadline = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(pause)

    def wait_for_steps(self, steps: int) -> None:
        self.wait_until(lambda: self.steps() >= steps)


@pytest.fixture(scope="session")
def background() -> Callable[..., contextlib.AbstractContextManager[Training]]:
    """See `trained_until`."""
    return trained_until


def started_as_ranks(store: Path, before: str, *arguments: object, size: int = 2) -> list[tuple[int, str]]:
    """Run the command line as ``size`` ranks under a launcher that is not ours: exit code and stderr of each.

    Args:
        store: where they meet.
        before: code that each runs first; it can look at ``os.environ["RANK"]``.
        arguments: of the command line.
        size: how many there are.
    """
    code = f"import os, sys\n{before}\nsys.argv[0] = 'allears'\nfrom allears.cli.main import main\nmain()"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "ALLEARS_RENDEZVOUS": f"file://{store}",
            },
        )
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    return [(rank.returncode, errors) for rank, errors in zip(ranks, said, strict=True)]


@pytest.fixture(scope="session")
def as_ranks() -> Callable[..., list[tuple[int, str]]]:
    """See `started_as_ranks`."""
    return started_as_ranks


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


@pytest.fixture(scope="session")
def of_lengths() -> Callable[[Any], Any]:
    """What a plan needs to know of a collection: utterances of so many samples, without audio or text."""
    from allears.loading.collection import Column

    class OfLengths:
        def __init__(self, lengths: Any) -> None:
            self.columns = {"samples": lengths, "keys": np.arange(len(lengths), dtype=np.uint64)}

        def column(self, name: str) -> Column:
            return Column([(self.columns[name], range(len(self)))])

        def __len__(self) -> int:
            return len(self.columns["keys"])

        def forget(self) -> None:
            """Nothing is mapped."""

    return OfLengths


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


LONG: Sequence[str] = (
    *SMALL,
    "training.steps=25",
    "training.save_every=3",
    "training.digests=true",
    "training.average=false",
)
"""25 steps of ten an epoch; what is left by each is kept as digests."""


@pytest.fixture(scope="session")
def long() -> Sequence[str]:
    """See `LONG`."""
    return LONG


@pytest.fixture(scope="session")
def uninterrupted(command: CommandLine, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `LONG` on one process, never stopped."""
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    command("train", "tiny", f"dataset={dataset}", "--out", run, *LONG)
    return run


@pytest.fixture(scope="session")
def resized(command: CommandLine, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on 4, 3, 1 and again 4 processes with 0, 2 and 4 loader threads, each but the last killed at some step.

    None dies at a checkpoint alone: what was done since is done again.
    """
    run = tmp_path_factory.mktemp("resized") / "run"
    draw = random.Random(4)
    for processes, workers, (least, most) in ((4, 0, (4, 6)), (3, 2, (11, 13)), (1, 4, (17, 19))):
        given = (*LONG, f"loader.workers={workers}", "--processes", processes)
        with trained_until(dataset, run, *given) as training:
            steps = draw.randint(least, most)
            training.wait_for_steps(steps)
            # It is written beside the steps, and the next processes shall go on from it.
            training.wait_until((run / "checkpoints" / f"step-{steps // 3 * 3:08d}").exists)
    command("train", "tiny", f"dataset={dataset}", "--out", run, *LONG, "loader.workers=2", "--processes", 4)
    return run
