"""The average of a run's best checkpoints: often better than each of them (Izmailov et al., UAI 2018).

RUN/average/ is a checkpoint without an optimiser.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from allears.errors import CheckpointError
from allears.files import written_folder
from allears.text.tokenizer import Tokenizer
from allears.training import checkpoint
from allears.training.checksums import seal, verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor


def average_folder(run: Path) -> Path:
    """Where the average of ``run`` lies."""
    return run / "average"


def chosen(run: Path) -> Path:
    """What stands for a run: its average, else its best checkpoint, else its newest; a checkpoint for itself.

    Raises:
        CheckpointError: there is none.
    """
    if (run / "state.json").exists():
        return run
    average, found = average_folder(run), checkpoint.checkpoints(run)
    if (average / "state.json").exists():
        step = checkpoint.load_position(average).step
        if not found or step >= int(found[-1].name.removeprefix("step-")):  # else the training has gone on since
            return average
    return next(iter(checkpoint.best(run, 1)), None) or checkpoint.newest(run)


def write_average(place: Path, of: Sequence[Path]) -> None:
    """Write the average of the checkpoints ``of`` to ``place``; only one rank does this.

    Raises:
        CheckpointError: there is nothing to average, or the checkpoints are of different architectures.
    """
    if not of:
        raise CheckpointError(f"no checkpoint is there for {place}; name the folder of a run that has trained.")
    newest = checkpoint.newest(of[0].parent.parent)
    with written_folder(place) as folder:
        checkpoint.write_tensors(_mean(of), folder / "model.safetensors")
        shutil.copy(newest / "settings.yaml", folder / "settings.yaml")
        Tokenizer.load(newest / "tokenizer").save(folder / "tokenizer")
        position = replace(checkpoint.load_position(newest), score=None, scored=None)
        checkpoint.write_position(folder, position, average_of=sorted(path.name for path in of))
        seal(folder)


def _mean(of: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each tensor, in float64; the running statistics of batch norm are averaged like weights."""
    total: dict[str, Tensor] = {}
    for path in of:
        verify(path, optimizer=False)
        tensors = checkpoint.read_tensors(path / "model.safetensors")
        if total and {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in total.items()}:
            raise CheckpointError(f"{path} is of another architecture than {of[0]}; average checkpoints of one run.")
        total = {name: value.double() + total.get(name, 0.0) for name, value in tensors.items()}
        kinds = {name: value.dtype for name, value in tensors.items()}
    return {name: (value / len(of)).to(kinds[name]) for name, value in total.items()}
