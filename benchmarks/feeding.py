"""From stored speech to batches: allears beside Lhotse, WebDataset, Hugging Face datasets and a plain torch Dataset.

Run: python benchmarks/feeding.py CORPUS FOLDER   (CORPUS holds .flac files; FOLDER keeps what is made of them)
One core, one thread, one process; all take the same clips in the same batches and give int16 or float32 samples as they
do by themselves, padded, in turns: the figures are medians of the turns. Lhotse and allears compute the same features.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import logging
import math
import os
import statistics
import tarfile
import time
import warnings
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import h5py
import numpy as np
import soundfile
import torch

from allears.audio.decode import encode
from allears.layers.kaldi_fbank import KaldiFbank
from allears.loading.collate import collate
from allears.loading.collection import Collection, Column, SourceSettings
from allears.loading.epochs import EpochPlans
from allears.loading.example import ExampleReader
from allears.loading.loader import Loader, LoaderSettings
from allears.loading.plan import PlanSettings
from allears.processes import keep_freed_memory
from allears.shards.prepare import Corpus, prepare
from allears.types import SAMPLE_RATE, Batch, Example, Utterance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from allears.text.tokenizer import Tokenizer

    Chain = Callable[[], Any]

BATCH_SECONDS = 150.0
FBANK: dict[str, Any] = {"num_mel_bins": 80, "low_freq": 20.0, "high_freq": 0.0, "snip_edges": True, "dither": 0.0}
"""Lhotse's settings that make it compute what `KaldiFbank` does, on samples of the same scale."""
NOTHING = np.zeros(0, dtype=np.int32), np.zeros((0, 2), dtype=np.float32), np.zeros((0, 2), dtype=np.float32)


@dataclass(frozen=True)
class Rate:
    """How fast a chain is.

    Attributes:
        clip_seconds: mean length of a clip.
        chain: from what to what.
        who: whose it is.
        speed: seconds of audio in a second, the median of all turns.
        lowest: of all turns.
        highest: of all turns.
    """

    clip_seconds: float
    chain: str
    who: str
    speed: float
    lowest: float
    highest: float


class Clips:
    """The same speech in all forms.

    Args:
        corpus: where the speech comes from.
        folder: keeps what is made of it.
        clip_seconds: mean length of a clip; they vary by a quarter of it.
        seconds: of all clips.
    """

    def __init__(self, corpus: Path, folder: Path, clip_seconds: float, seconds: float) -> None:
        self.folder = folder / f"{clip_seconds:g}"
        whole = np.concatenate([soundfile.read(path, dtype="int16")[0] for path in sorted(corpus.rglob("*.flac"))])
        draw = np.random.default_rng(0)
        counts = (draw.uniform(0.75, 1.25, round(seconds / clip_seconds)) * clip_seconds * SAMPLE_RATE).astype(int)
        begins = draw.integers(0, len(whole) - counts)
        self.samples = [whole[begin : begin + count].copy() for begin, count in zip(begins, counts, strict=True)]
        self.seconds = float(counts.sum()) / SAMPLE_RATE
        self.names = [f"{n:05d}" for n in range(len(counts))]
        self.flac = [encode(samples, "flac") for samples in self.samples]
        for kind in ("wav", "flac"):
            place = self.folder / kind
            place.mkdir(parents=True, exist_ok=True)
            for name, samples in zip(self.names, self.samples, strict=True):
                soundfile.write(place / f"{name}.{kind}", samples, SAMPLE_RATE, subtype="PCM_16")
            with tarfile.open(self.folder / f"{kind}.tar", "w") as tar:
                for name in self.names:
                    tar.add(place / f"{name}.{kind}", f"{name}.{kind}")
        with h5py.File(self.folder / "clips.h5", "w") as file:
            file["audio"], file["offsets"] = np.concatenate(self.samples), np.cumsum([0, *counts])

    @cached_property
    def batches(self) -> list[list[int]]:
        """Clips of each batch: of `BATCH_SECONDS`, of nearly one length."""
        order = np.argsort([len(samples) for samples in self.samples], kind="stable").tolist()
        size = max(round(BATCH_SECONDS * len(order) / self.seconds), 1)
        return [order[begin : begin + size] for begin in range(0, len(order), size)]

    def path(self, kind: str, n: int) -> Path:
        """A clip's file."""
        return self.folder / kind / f"{self.names[n]}.{kind}"


class NoTokens:
    """Stands for a tokenizer: the peers have none in these chains."""

    def encode(self, _: str) -> NDArray[np.int32]:
        """Nothing."""
        return NOTHING[0]


class Allears:
    """Our chain: shard → padded batch → features."""

    def __init__(self, clips: Clips, encoding: Any) -> None:
        dataset = clips.folder / f"dataset-{encoding}"
        utterances = [Utterance(name, str(clips.path("wav", n)), "clip") for n, name in enumerate(clips.names)]
        prepare(Corpus(clips.folder, "pairs", utterances, []), dataset, encoding=encoding, overwrite=True)
        collection = Collection.open([SourceSettings(dataset=str(dataset))])
        tokenizer = NoTokens()
        counts = Column([(np.ones((len(collection), 1), dtype=np.int32), range(len(collection)))])
        plan = PlanSettings(step_seconds=BATCH_SECONDS, micro_batches=1, max_seconds=60)
        self._plans = EpochPlans(collection, counts, plan, 0)
        self._reader = ExampleReader(collection, cast("Tokenizer", tokenizer), 0, None)
        self._features = KaldiFbank()
        self._plans.at(0)

    def batches(self) -> Iterator[Batch]:
        """All batches, made when they are asked for."""
        loader = Loader(self._plans, self._reader, range(1), 0, self._plans.steps_per_epoch, LoaderSettings(workers=0))
        return (batch for work in loader for batch in work.batches if batch)

    def features(self) -> Iterator[torch.Tensor]:
        """Features of all batches."""
        for batch in self.batches():
            yield self._features(batch.waveforms, batch.waveform_lengths)[0]


def lhotse_cuts(clips: Clips, kind: str) -> list[Any]:
    """Lhotse's cuts of a batch each, over files."""
    from lhotse import CutSet, Recording

    cuts = [Recording.from_file(clips.path(kind, n)).to_cut() for n in range(len(clips.names))]
    return [CutSet.from_cuts([cuts[n] for n in batch]) for batch in clips.batches]


def lhotse_batches(cuts: Sequence[Any], strategy: Any) -> Iterator[Any]:
    """What an input strategy of Lhotse makes of each batch."""
    return (strategy(some) for some in cuts)


def padded(waveforms: Sequence[NDArray[np.int16]]) -> Batch:
    """A batch of plain arrays."""
    return collate([Example(0, waveform, *NOTHING) for waveform in waveforms])


def decoded(data: bytes) -> NDArray[np.int16]:
    """Samples of a file in memory."""
    found: NDArray[np.int16] = soundfile.read(io.BytesIO(data), dtype="int16")[0]
    return found


def webdataset_batches(clips: Clips, kind: str) -> Iterator[Any]:
    """WebDataset over a tar of files, decoded by soundfile; its clips in the order of the tar."""
    import webdataset

    pipeline = webdataset.WebDataset(str(clips.folder / f"{kind}.tar"), shardshuffle=False, empty_check=False)
    size = len(clips.batches[0])
    return iter(pipeline.map(lambda sample: decoded(sample[kind])).batched(size, collation_fn=padded))


def huggingface(clips: Clips, kind: str) -> Any:
    """A Hugging Face dataset on disk, whose rows hold the files' bytes."""
    import datasets

    place = clips.folder / f"hf-{kind}"
    rows = [clips.path(kind, n).read_bytes() for n in range(len(clips.names))]
    datasets.Dataset.from_dict({"bytes": rows}).save_to_disk(str(place))
    return datasets.load_from_disk(str(place))


def huggingface_batches(table: Any, batches: Sequence[Sequence[int]]) -> Iterator[Batch]:
    """Its batches, decoded by soundfile."""
    return (padded([decoded(data) for data in table[list(batch)]["bytes"]]) for batch in batches)


class FileDataset(torch.utils.data.Dataset[Any]):
    """What many a recipe has: a file is opened for each item."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, n: int) -> NDArray[np.int16]:
        samples: NDArray[np.int16] = soundfile.read(self._paths[n], dtype="int16")[0]
        return samples


def torch_batches(clips: Clips, kind: str) -> Iterator[Batch]:
    """A plain torch DataLoader without workers."""
    files = FileDataset([clips.path(kind, n) for n in range(len(clips.names))])
    return iter(torch.utils.data.DataLoader(files, batch_sampler=clips.batches, collate_fn=padded))


def hdf5_batches(clips: Clips) -> Iterator[Batch]:
    """Slices of one open HDF5 file by h5py."""
    with h5py.File(clips.folder / "clips.h5") as file:
        audio, offsets = file["audio"], file["offsets"][:]
        for batch in clips.batches:
            yield padded([audio[offsets[n] : offsets[n + 1]] for n in batch])


def chains(clips: Clips) -> dict[tuple[str, str], Chain]:
    """(Chain, whose) → what runs it once over all clips."""
    from lhotse import Fbank, FbankConfig
    from lhotse.dataset.input_strategies import AudioSamples, OnTheFlyFeatures

    found: dict[tuple[str, str], Chain] = {}
    fbank = Fbank(FbankConfig(**FBANK))
    for kind, encoding in (("wav", "pcm16"), ("flac", "flac")):
        ours, cuts, table = Allears(clips, encoding), lhotse_cuts(clips, kind), huggingface(clips, kind)
        batch, features = f"{kind} → batch", f"{kind} → log-mel"
        found[batch, "allears"] = ours.batches
        found[batch, "lhotse"] = partial(lhotse_batches, cuts, AudioSamples())
        found[batch, "webdataset"] = partial(webdataset_batches, clips, kind)
        found[batch, "datasets"] = partial(huggingface_batches, table, clips.batches)
        found[batch, "torch, a file an item"] = partial(torch_batches, clips, kind)
        found[features, "allears"] = ours.features
        found[features, "lhotse"] = partial(lhotse_batches, cuts, OnTheFlyFeatures(fbank))
    found["wav → batch", "h5py"] = partial(hdf5_batches, clips)
    found["flac decoded", "soundfile"] = lambda: map(decoded, clips.flac)
    return found


def difference(clips: Clips) -> float:
    """The greatest difference of our features and Lhotse's, in any bin of a clip."""
    from lhotse import Fbank, FbankConfig

    samples = clips.samples[0]
    theirs = torch.as_tensor(Fbank(FbankConfig(**FBANK)).extract(samples.astype(np.float32), SAMPLE_RATE))
    ours, _ = KaldiFbank()(torch.from_numpy(samples)[None], torch.tensor([len(samples)]))
    return float((theirs - ours[0]).abs().max()) if theirs.shape == ours.shape[1:] else math.inf


def measured(clips: Clips, clip_seconds: float, turns: int) -> list[Rate]:
    """All chains, one after the other, ``turns`` times and once before."""
    runs = chains(clips)
    speeds: dict[tuple[str, str], list[float]] = {name: [] for name in runs}
    for turn in range(turns + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            for _ in run():
                pass
            if turn:
                speeds[name].append(clips.seconds / (time.perf_counter() - began))
    return [
        Rate(clip_seconds, chain, who, statistics.median(found), min(found), max(found))
        for (chain, who), found in speeds.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clips", type=float, nargs="+", default=[10.0], help="mean seconds of a clip")
    parser.add_argument("--seconds", type=float, default=3000.0, help="of audio, in all")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON in the last line")
    chosen = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    keep_freed_memory()  # as in a training, for all of them
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    names = ("lhotse", "webdataset", "datasets", "torch", "soundfile", "miniaudio", "h5py")
    versions = {name: importlib.metadata.version(name) for name in names}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    rows = []
    for clip_seconds in chosen.clips:
        clips = Clips(chosen.corpus, chosen.folder, clip_seconds, chosen.seconds)
        off = difference(clips)
        print(f"clips of {clip_seconds:g} s, {clips.seconds:.0f} s in all; features differ from Lhotse's by {off:.1e}")
        found = measured(clips, clip_seconds, chosen.turns)
        for row in found:
            (ours,) = [one.speed for one in found if one.who == "allears" and one.chain == row.chain] or [0.0]
            ratio = f"{ours / row.speed:>7.1f}" if ours else ""
            print(f"{row.chain:<16}{row.who:<24}{row.speed:>10,.0f} × real time{ratio}")
        rows += [{**asdict(row), "difference": off} for row in found]
    if chosen.json:
        print(json.dumps({"versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()
