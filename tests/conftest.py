"""Small corpora of tones: each word is a tone of its own, so that a few steps of training show in the loss."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: threads of tests that share cores wait for each other

import numpy as np
import psutil
import pytest
import soundfile
from tests.forked import ALLEARS, Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.forked import Forked

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


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Forked]]:
    """See `Server.start`."""
    with Server(tmp_path_factory.mktemp("forked")) as server:
        yield server.start


@pytest.fixture(scope="session")
def command(forked: Callable[..., Forked]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line in a process of its own and check its exit code."""

    def allears(*arguments: object, fails: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        process = forked(*arguments, **environment)
        code, said, errors = process.wait(), process.stdout.read_text(), process.stderr.read_text()
        assert (code != 0) == fails, f"exit {code}\n{said}\n{errors}"
        assert "Traceback" not in errors, errors
        return subprocess.CompletedProcess([*map(str, arguments)], code, said, errors)

    return allears


class Training:
    """A training in the background; what it says on stderr is in `said`."""

    def __init__(self, run: Path, process: Forked) -> None:
        self.run = run
        self.process = process

    def said(self) -> str:
        return self.process.stderr.read_text()

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


Background = Callable[..., contextlib.AbstractContextManager[Training]]


@pytest.fixture(scope="session")
def background(forked: Callable[..., Forked]) -> Background:
    """A training that is not waited for, killed with SIGKILL at the end of the block."""

    @contextlib.contextmanager
    def trained_until(dataset: Path, run: Path, *more: object) -> Iterator[Training]:
        process = forked("train", "tiny", f"dataset={dataset}", "--out", run, *more)
        try:
            yield Training(run, process)
        finally:
            process.kill()
            process.wait()

    return trained_until


@pytest.fixture(scope="session")
def as_ranks(forked: Callable[..., Forked]) -> Callable[..., list[tuple[int, str]]]:
    """Run the command line as ranks under a launcher that is not ours: exit code and stderr of each."""

    def started(store: Path, before: str, *arguments: object, size: int = 2) -> list[tuple[int, str]]:
        """Ranks that meet at ``store`` and first run ``before``; it can look at ``os.environ["RANK"]``."""
        code = f"import os, sys\n{before}\n{ALLEARS}"
        meeting = {"WORLD_SIZE": str(size), "ALLEARS_RENDEZVOUS": f"file://{store}"}
        ranks = [forked(*arguments, code=code, RANK=str(rank), **meeting) for rank in range(size)]
        return [(rank.wait(), rank.stderr.read_text()) for rank in ranks]

    return started


def ranks_of(launcher: int) -> list[psutil.Process]:
    """The ranks below a launcher, in their order: children of its fork server."""
    found = []
    for child in psutil.Process(launcher).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.ppid() != launcher and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return sorted(found, key=lambda child: child.pid)


@pytest.fixture(scope="session")
def ranks() -> Callable[[int], list[psutil.Process]]:
    """See `ranks_of`."""
    return ranks_of


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
def uninterrupted(
    command: Callable[..., object], dataset: Path, long: Sequence[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The run of `long` on one process, never stopped."""
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    command("train", "tiny", f"dataset={dataset}", "--out", run, *long)
    return run


@pytest.fixture(scope="session")
def resized(
    command: Callable[..., object],
    background: Background,
    dataset: Path,
    long: Sequence[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The same on 4, 3, 1 and again 4 processes with 0, 2 and 4 loader threads, each but the last killed at some step.

    None dies at a checkpoint alone: what was done since is done again.
    """
    run = tmp_path_factory.mktemp("resized") / "run"
    draw = random.Random(4)
    for processes, workers, (least, most) in ((4, 0, (4, 6)), (3, 2, (11, 13)), (1, 4, (17, 19))):
        given = (*long, f"loader.workers={workers}", "--processes", processes)
        with background(dataset, run, *given) as training:
            steps = draw.randint(least, most)
            training.wait_for_steps(steps)
            # It is written beside the steps, and the next processes shall go on from it.
            training.wait_until((run / "checkpoints" / f"step-{steps // 3 * 3:08d}").exists)
    command("train", "tiny", f"dataset={dataset}", "--out", run, *long, "loader.workers=2", "--processes", 4)
    return run
