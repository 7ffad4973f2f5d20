"""Utterances whose loss or gradient is not finite: named, kept for replay, and left out from then on.

quarantine.jsonl: a line for each guilty micro-batch, ``step place utterances ids first loss``.
quarantine/step-XXXXXXXX-place-N/: batch.safetensors, the micro-batch as the model got it; model.safetensors, the
weights it met (of the first few only, for they may be large); guilty.json, a `Kept`.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from allears.errors import CheckpointError, DataError, SettingsError, TrainingError
from allears.files import read_json, write_json, written_folder
from allears.reporting import say
from allears.settings import Settings, build
from allears.training.checkpoint import existing, read_tensors, write_tensors
from allears.training.lines import StepLines
from allears.training.precision import Precision
from allears.types import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from torch import nn

    from allears.types import Loss
    from allears.world import World

BATCH = ("waveforms", "waveform_lengths", "tokens", "token_lengths", "frequency_masks", "time_masks")
"""Names of a batch's tensors, in its own order."""

WEIGHTS_KEPT = 3
"""How many guilty micro-batches are kept with the weights they met."""


def quarantine_folder(run: Path) -> Path:
    """Where ``run`` keeps guilty micro-batches."""
    return run / "quarantine"


@dataclass(frozen=True, slots=True)
class Guilty:
    """A micro-batch that would have spoiled its step.

    Attributes:
        step: the plan step.
        place: in that step.
        utterances: those of its utterances that are guilty by themselves, else all of them; numbers of the run's own.
        ids: theirs.
        first: the first tensor that was not finite: a module's output in forward, else a weight's gradient.
        loss: its loss.
    """

    step: int
    place: int
    utterances: list[int]
    ids: list[str]
    first: str
    loss: float


class Kept(Settings):
    """What is kept of a guilty micro-batch, to run it again.

    Attributes:
        step: see `Guilty`; likewise up to ``loss``, which is a string because JSON knows no infinity.
        batch: the numbers of all its utterances.
        seed: of its dropout.
        precision: what it was computed in.
    """

    step: int
    place: int
    utterances: list[int]
    ids: list[str]
    first: str
    loss: str
    batch: list[int]
    seed: int
    precision: Precision


def kept(run: Path) -> list[Path]:
    """The micro-batches that ``run`` has in quarantine, in the order of their steps.

    Raises:
        CheckpointError: there is no such run.
    """
    return sorted(path.parent for path in quarantine_folder(existing(run)).glob("step-*/guilty.json"))


def read_kept(place: Path) -> Kept:
    """What ``place`` keeps of a micro-batch.

    Raises:
        DataError: it is damaged.
    """
    path = place / "guilty.json"
    try:
        return build(Kept, read_json(path), path.name)
    except (DataError, SettingsError) as error:
        raise DataError(f"{place} is damaged: {str(error).rstrip('.')}; remove it.") from error


def read_batch(place: Path, utterances: list[int]) -> Batch:
    """The micro-batch of ``utterances`` that ``place`` keeps.

    Raises:
        CheckpointError: it is damaged.
    """
    path = place / "batch.safetensors"
    tensors = read_tensors(path)
    if tensors.keys() != set(BATCH):
        raise CheckpointError(f"{path} is damaged: it holds {', '.join(tensors)} instead of {', '.join(BATCH)}.")
    return Batch(utterances, *(tensors[name] for name in BATCH))


@contextlib.contextmanager
def watched(model: nn.Module) -> Iterator[list[str]]:
    """Yield a list that fills with the names of modules whose output is not finite, the first one first."""
    names = {module: name for name, module in model.named_modules()}
    found: list[str] = []

    def look(module: nn.Module, _: object, output: object) -> None:
        tensors = output if isinstance(output, tuple | list) else (output,)
        floats = [one for one in tensors if isinstance(one, torch.Tensor) and one.is_floating_point()]
        if not all(bool(one.isfinite().all()) for one in floats):
            found.append(f"the output of {names[module] or 'the model'}")

    hooks = [module.register_forward_hook(look) for module in names]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def first_not_finite(model: nn.Module, backward: Callable[[], Loss]) -> tuple[str | None, float]:
    """The first tensor that is not finite while ``backward`` runs ``model`` forward and back, and the loss it returns.

    None if all are: looked at are outputs in the order of forward, the loss, gradients in the order of backward.
    """
    with watched(model) as outputs:
        loss = backward()
    total = float(sum(value.detach() for value in loss.sums.values()))
    gradients = (
        f"the gradient of {name}"
        for name, parameter in reversed(list(model.named_parameters()))
        if parameter.grad is not None and not parameter.grad.isfinite().all()
    )
    return next(iter(outputs), None) or (None if math.isfinite(total) else "the loss") or next(gradients, None), total


class Quarantine:
    """What a run leaves out; the same on all ranks.

    Args:
        run: its folder.
        start: first plan step; what was found from there on is forgotten.
        world: who else trains.
        already: utterances in quarantine before.
        most: how many may be before the run stops.
        precision: what is computed in.
    """

    def __init__(
        self, run: Path, start: int, world: World, already: Iterable[int], most: int, precision: Precision
    ) -> None:
        self.utterances = set(already)
        self._folder = quarantine_folder(run)
        self._most = most
        self._precision = precision
        self._world = world
        self._path, self._start = run / "quarantine.jsonl", start
        self._lines = StepLines(self._path, start) if world.leads and self._path.exists() else None
        self._kept = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._lines is not None:
            self._lines.__exit__()

    def keep(self, guilty: Guilty, batch: Batch, model: nn.Module, seed: int) -> None:
        """Keep a micro-batch for replay; by the rank that computed it."""
        with written_folder(self._folder / f"step-{guilty.step:08d}-place-{guilty.place}") as folder:
            write_tensors(dict(zip(BATCH, batch.tensors(), strict=True)), folder / "batch.safetensors")
            if self._kept < WEIGHTS_KEPT:
                write_tensors(model.state_dict(), folder / "model.safetensors")
            details = {**_plain(guilty), "batch": batch.utterances, "seed": seed, "precision": self._precision}
            write_json(folder / "guilty.json", Kept(**details).model_dump(mode="json"))
        self._kept += 1

    def add(self, found: Sequence[Guilty]) -> None:
        """Take what all ranks have found in a step; called on all of them alike.

        Raises:
            TrainingError: there are now too many.
        """
        for guilty in found:
            self.utterances |= set(guilty.utterances)
            if self._world.leads:
                self._lines = self._lines or StepLines(self._path, self._start)
                self._lines.add(_plain(guilty))
                say(
                    f"note: step {guilty.step}, micro-batch {guilty.place}: {guilty.first} is not finite; left out "
                    f"from now on: {', '.join(guilty.ids)}."
                )
        if len(self.utterances) > self._most:
            raise TrainingError(
                f"{len(self.utterances)} utterances are in quarantine, more than training.most_quarantined "
                f"({self._most}): {self._path} names them; listen to some, lower optimizer.learning_rate.value, or "
                "raise the bound."
            )


def _plain(guilty: Guilty) -> dict[str, Any]:
    return {**asdict(guilty), "loss": repr(guilty.loss)}
