"""Resuming at a plan step of a large training: seconds and memory from the imports to the first batch, and step.

Run: python benchmarks/resume.py DATASET --utterances 1000000 10000000
DATASET is a small prepared one. Its rows are repeated, under ids of their own and cut to log-normal lengths, until they
are as many as asked for: an index of that size over real shards. Then processes start side by side as the ranks of one
machine do, once without and once with the plan that those before them left, and memory is sampled: the sum of their
proportional set sizes, in which a page that they share counts once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allears.loading.tokens import counts_path
from allears.manifest.index import Index, Row, write
from allears.text.tokenizer import Tokenizer, TokenizerSettings, ctc_frames
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEAKER = 200  # utterances of each
COLUMNS = (
    "utterances ranks speeds plan first_batch_s first_step_s cpu_s imports_mb to_first_batch_mb to_first_step_mb "
    "next_planned_mb step_ms"
)


class Repeated:
    """The rows of a small dataset, each with as many of its words as its cut leaves time for."""

    def __init__(self, index: Index, utterances: int) -> None:
        self.index = index
        self.utterances = utterances
        draw = np.random.default_rng(0)
        self.of = draw.integers(0, len(index), utterances)
        lengths = np.exp(draw.normal(np.log(9.0), 0.6, utterances)).clip(0.5, 30.0) * SAMPLE_RATE
        self.samples = np.minimum(lengths.astype(np.int64), index.samples[self.of])
        words = np.array([len(index.text(row).split()) for row in range(len(index))])
        self.words = np.maximum(words[self.of] * self.samples // index.samples[self.of], 1)

    def text(self, row: int, words: int) -> str:
        """The first ``words`` of a row's transcript."""
        return " ".join(self.index.text(row).split()[:words])

    def rows(self) -> Iterator[Row]:
        """What the large index holds."""
        shard, offset = self.index.shard.tolist(), self.index.offset.tolist()
        for n, (row, words, samples) in enumerate(zip(*map(np.ndarray.tolist, self._columns()), strict=True)):
            speaker = f"speaker {n // SPEAKER}"
            yield Row(
                f"row {n}", self.text(row, words), speaker, "en", "train", samples, shard[row], offset[row], 2 * samples
            )

    def counts(self, tokenizer: Tokenizer) -> np.ndarray[Any, np.dtype[np.int32]]:
        """What `token_counts` would count, each text once [utterances, 3]."""
        texts, back = np.unique(np.stack((self.of, self.words)), axis=1, return_inverse=True)
        found = []
        for row, words in texts.T.tolist():
            tokens = tokenizer.encode(self.text(row, words))
            found.append((len(tokens), ctc_frames(tokens), tokenizer.unknown_tokens(tokens)))
        return np.array(found, dtype=np.int32)[back]

    def _columns(self) -> tuple[Any, Any, Any]:
        return self.of, self.words, self.samples


def enlarged(small: Path, utterances: int, folder: Path) -> Path:
    """A run's folder with its tokenizer, whose dataset of so many utterances lies beside it; made once."""
    run, dataset = folder / f"run-{utterances}", folder / f"dataset-{utterances}"
    if not (dataset / "index").exists():
        index = Index.open(small)
        if index.encoding != "pcm16":
            raise SystemExit(f"{small} holds {index.encoding} and its segments cannot be cut; prepare it as pcm16.")
        repeated = Repeated(index, utterances)
        texts = [index.text(row) for row in range(len(index))]
        tokenizer, _ = Tokenizer.train(texts, TokenizerSettings(pieces=128))
        tokenizer.save(run / "tokenizer")
        dataset.mkdir(parents=True, exist_ok=True)
        shutil.copytree(small / "shards", dataset / "shards", dirs_exist_ok=True)
        write(dataset, repeated.rows(), index.encoding, index.shards)
        path = counts_path(Index.open(dataset), tokenizer)
        path.parent.mkdir(exist_ok=True)
        np.save(path, repeated.counts(tokenizer))
    return run


def resume(run: Path, dataset: Path, rank: int, ranks: int, step: int, speeds: str) -> None:
    """One rank: after a line, its first batch (a micro-batch); after another, its first step and the next epoch."""
    import torch

    from allears.loading.example import ExampleReader
    from allears.loading.loader import Loader
    from allears.loading.plan import subtrees
    from allears.run.material import material_of
    from allears.run.settings import settings_of
    from allears.run.train import train  # noqa: F401 (what a training imports)
    from allears.world import World

    settings, _ = settings_of("small", [f"train.dataset={dataset}", f"augment.speed={speeds}"])
    world = World(rank, ranks, rank, ranks, torch.device("cpu"))
    _tell(ready=_memory(os.getpid()))
    sys.stdin.readline()
    began, cpu = time.perf_counter(), time.process_time()
    material = material_of(settings, settings.train, run, True, world)
    places = subtrees(settings.plan.micro_batches, ranks)[rank]
    reader = ExampleReader(
        material.collection, material.tokenizer, settings.seed, settings.model.spec_augment, settings.augment
    )
    loader = Loader(material.plans, reader, places, step, step + 1, settings.loader)
    assert loader.only(step, places[0]).batches[0] is not None
    to_batch = time.perf_counter() - began
    _tell(seconds=to_batch)
    sys.stdin.readline()
    began = time.perf_counter()
    (work,) = loader
    _tell(
        seconds=to_batch + time.perf_counter() - began,
        cpu=time.process_time() - cpu,
        utterances=work.planned.utterances,
    )
    began = time.perf_counter()
    for later in range(step, step + 1000):
        material.plans.planned(later)
    _tell(step_ms=time.perf_counter() - began)  # of a thousand: milliseconds each
    material.plans.at(step + material.plans.steps_per_epoch)
    _tell(planned=True)
    sys.stdin.readline()


def _tell(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def _memory(process: int) -> float:
    """Proportional set size in MB."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


class Watch(threading.Thread):
    """Samples the memory of processes together; `peak` is the largest sum so far, in MB."""

    def __init__(self, processes: list[int]) -> None:
        super().__init__(daemon=True)
        self.processes = processes
        self.peak = 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.01):
            self.peak = max(self.peak, sum(map(_memory, self.processes)))

    def end(self) -> None:
        """Sample no more."""
        self._ended.set()
        self.join()


def measured(run: Path, dataset: Path, ranks: int, step: int, speeds: str) -> dict[str, Any]:
    """One start of ``ranks`` processes."""
    me = [sys.executable, __file__, str(dataset), "--run", str(run), "--ranks", str(ranks), "--step", str(step)]
    started = [
        subprocess.Popen(
            [*me, "--speeds", speeds, "--rank", str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for rank in range(ranks)
    ]

    def told() -> list[dict[str, Any]]:
        return [json.loads(process.stdout.readline()) for process in started if process.stdout]

    def go() -> None:
        for process in started:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()

    told()
    imports = sum(_memory(process.pid) for process in started)  # all have theirs, so that what is shared is shared
    watch = Watch([process.pid for process in started])
    watch.start()
    go()
    first = told()
    to_first = watch.peak
    go()
    whole = told()
    to_step = watch.peak
    steps = told()
    told()
    watch.end()
    go()
    for process in started:
        process.wait()
    return {
        "first_batch_s": max(one["seconds"] for one in first),
        "first_step_s": max(one["seconds"] for one in whole),
        "cpu_s": sum(one["cpu"] for one in whole),
        "imports_mb": imports,
        "to_first_batch_mb": to_first,
        "to_first_step_mb": to_step,
        "next_planned_mb": watch.peak,
        "step_ms": max(one["step_ms"] for one in steps),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="a small prepared dataset of pcm16 shards")
    parser.add_argument("--utterances", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--ranks", type=int, default=2, help="processes of the machine")
    parser.add_argument("--step", type=int, default=100_000, help="where they resume")
    parser.add_argument("--speeds", default="[0.9, 1.0, 1.1]", help="augment.speed")
    parser.add_argument("--folder", type=Path, help="where the large datasets are kept; default: a temporary folder")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON in the last line")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank is not None:
        resume(chosen.run, chosen.dataset, chosen.rank, chosen.ranks, chosen.step, chosen.speeds)
        return
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        print("  ".join(COLUMNS.split()))
        for utterances in chosen.utterances:
            run = enlarged(chosen.dataset, utterances, folder)
            shutil.rmtree(run / "plan", ignore_errors=True)
            for plan in ("made", "kept") if chosen.ranks > 1 else ("made",):
                found = measured(run, folder / f"dataset-{utterances}", chosen.ranks, chosen.step, chosen.speeds)
                rows.append(
                    {"utterances": utterances, "ranks": chosen.ranks, "speeds": chosen.speeds, "plan": plan, **found}
                )
                print("  ".join(_cell(rows[-1][name]).rjust(len(name)) for name in COLUMNS.split()), flush=True)
    if chosen.json:
        print(json.dumps(rows))


def _cell(value: Any) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float) and value < 10
        else f"{value:.0f}"
        if isinstance(value, float)
        else f"{value}"
    )


if __name__ == "__main__":
    main()
