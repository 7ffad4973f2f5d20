"""A model that computes nothing: it takes the batches of a real loader at a set speed, as an accelerator would.

``python -m proof.consumer DATASET --rank R --ranks N --speed 5000`` prints, as JSON, how long it waited for data; with
``--epochs E --speed 0`` it takes all it can get, and prints its memory after each epoch.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
import torch

from allears.loading.example import ExampleReader
from allears.loading.loader import Loader
from allears.loading.plan import subtrees
from allears.run.material import material_of
from allears.run.settings import settings_of
from allears.types import SAMPLE_RATE
from allears.world import World

if TYPE_CHECKING:
    from allears.loading.loader import StepWork


def audio_seconds(work: StepWork) -> float:
    """Audio of a rank's part of a step."""
    return sum(int(batch.waveform_lengths.sum()) for batch in work.batches if batch) / SAMPLE_RATE


def consumed(loader: Loader, speed: float, warm: int) -> dict[str, float]:
    """Take all batches; ``warm`` steps before the clock starts, as the first ones of a training are compiled."""
    waited = busy = audio = 0.0
    began = time.perf_counter()
    for number, work in enumerate(loader):
        seconds = audio_seconds(work)
        if number >= warm:
            waited += time.perf_counter() - began
            audio += seconds
        began = time.perf_counter()
        if speed:
            time.sleep(seconds / speed)
        if number >= warm:
            busy += time.perf_counter() - began
        began = time.perf_counter()
    return {"waited": waited, "busy": busy, "audio": audio}


def main() -> None:
    """Print the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--speed", type=float, default=5000.0)
    parser.add_argument("--epochs", type=int, default=1)
    chosen, settings_given = parser.parse_known_args()
    torch.set_num_threads(1)
    settings, _ = settings_of("small", [f"train.dataset={chosen.dataset}", *settings_given])
    # Each rank gathers for itself: there is no process group here.
    world = World(0, 1, 0, 1, torch.device("cpu"))
    with TemporaryDirectory() as folder:
        material = material_of(settings, settings.train, Path(folder), False, world)
    reader = ExampleReader(
        material.collection, material.tokenizer, settings.seed, settings.model.spec_augment, settings.augment
    )
    places = subtrees(settings.plan.micro_batches, chosen.ranks)[chosen.rank]
    steps = material.plans.steps_per_epoch
    found: dict[str, Any] = {"epochs": []}
    for epoch in range(chosen.epochs):
        loader = Loader(material.plans, reader, places, epoch * steps, (epoch + 1) * steps, settings.loader)
        memory = psutil.Process().memory_info
        found["epochs"].append({**consumed(loader, chosen.speed, min(4, steps // 4)), "memory": memory().rss})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
