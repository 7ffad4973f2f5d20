"""For how long a step waits for a checkpoint, beside `torch.save` of the same state; and saves that are killed.

``python -m proof.stalls FOLDER`` measures; ``python -m proof.stalls FOLDER kill`` kills.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from allears.models.conformer import ConformerSettings
from allears.models.ctc import ModelSettings
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.training.checkpoint import Position, checkpoints, load_model, load_optimizer, load_position
from allears.training.checksums import verify
from allears.training.optimizer import OptimizerSettings, with_state
from allears.training.saver import BackgroundSaver
from allears.types import Batch

if TYPE_CHECKING:
    from torch import nn

SAVES = 5
KILLS = 10


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A Conformer of 50 million parameters, and AdamW with its state."""
    torch.manual_seed(0)
    encoder = ConformerSettings(width=384, blocks=15, heads=6)
    model = ModelSettings(encoder=encoder).build(1000)
    model.frontend.set_statistics(torch.zeros(80), torch.ones(80))
    return model, with_state(OptimizerSettings().build(model))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, saver: BackgroundSaver) -> float:
    """A step on four seconds of noise; for how long it waited for the copy."""
    bands = torch.zeros(1, 0, 2)
    batch = Batch(
        [0],
        torch.randint(-3000, 3000, (1, 64000), dtype=torch.int16),
        torch.tensor([64000]),
        torch.ones(1, 20, dtype=torch.int32),
        torch.tensor([20]),
        bands,
        bands,
    )
    model(batch).sums["ctc"].backward()
    began = time.perf_counter()
    saver.copied()
    waited = time.perf_counter() - began
    optimizer.step()
    optimizer.zero_grad()
    return waited


def measure(folder: Path) -> dict[str, Any]:
    """Seconds that a step stalls at each save, and seconds of `torch.save`, in turns."""
    torch.set_num_threads(1)
    model, optimizer = made()
    tokenizer = Tokenizer.train(["low mid high"] * 3, TokenizerSettings(pieces=14))[0]
    stalls, steps, plain, beside = [], [], [], []
    with BackgroundSaver(folder, model, optimizer, {}, tokenizer, 2, 0) as saver:
        for number in range(1, SAVES + 1):
            began = time.perf_counter()
            step(model, optimizer, saver)
            plain.append(time.perf_counter() - began)
            began = time.perf_counter()
            saver.save(Position(number, number, "d"))
            stalls.append(time.perf_counter() - began + step(model, optimizer, saver))
            steps.append(time.perf_counter() - began)
            saver.finish()
            began = time.perf_counter()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "beside.pt")
            beside.append(time.perf_counter() - began)
    newest = checkpoints(folder)[-1]
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bytes": sum(path.stat().st_size for path in newest.glob("*.safetensors")),
        "stalls": stalls,
        "steps_with_a_save": steps,
        "steps": plain,
        "torch_save": beside,
    }


def save_for_ever(folder: Path) -> None:
    """Save one checkpoint after the other; a line before each."""
    model, optimizer = made()
    tokenizer = Tokenizer.train(["low mid high"] * 3, TokenizerSettings(pieces=14))[0]
    found = checkpoints(folder)
    first = load_position(found[-1]).step + 1 if found else 1
    with BackgroundSaver(folder, model, optimizer, {}, tokenizer, 2, 0) as saver:
        for number in range(first, 1 << 30):
            began = time.perf_counter()
            saver.save(Position(number, number, "d"))
            saver.finish()
            print(time.perf_counter() - began, flush=True)


def kill(folder: Path) -> dict[str, int]:
    """Kill saves at random moments; how often the newest complete checkpoint loads."""
    model, optimizer = made()
    sound = 0
    draw = random.Random()
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", "proof.stalls", str(folder), "for-ever"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        seconds = float(process.stdout.readline())  # one whole save, so that there is one; then one more is killed
        time.sleep(draw.uniform(0, seconds))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        newest = checkpoints(folder)[-1]
        verify(newest)
        load_model(newest, model)
        load_optimizer(newest, model, optimizer)
        sound += 1
    return {"kills": KILLS, "sound": sound}


def main() -> None:
    """Do one of the three."""
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["for-ever"]:
        save_for_ever(folder)
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(json.dumps(kill(folder) if sys.argv[2:] == ["kill"] else measure(folder)))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
