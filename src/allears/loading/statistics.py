"""Mean and deviation of each band over the training audio: the same bits on any number of processes and threads."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from allears import watching
from allears.errors import AudioError, PlanError
from allears.loading.collate import collate
from allears.reporting import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from allears.layers.features import Frontend
    from allears.loading.collection import Collection
    from allears.types import Example
    from allears.world import World

CHUNK = 8
"""Utterances whose sums are made together; fixed, for it is the order of the additions."""
_STEP = 2.0**-10
"""Statistics are rounded to multiples of it: what is left of a different order of additions vanishes."""


class Examples(Protocol):
    """Reads utterances, see `allears.loading.example.ExampleReader`."""

    def example(self, utterance: int, epoch: int) -> Example: ...


@torch.no_grad()
def feature_statistics(
    collection: Collection, reader: Examples, frontend: Frontend, world: World, hours: float = 10.0
) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each band before normalisation, each float32 [bins], on every rank.

    Utterances whose audio cannot be used are passed over.

    Args:
        collection: the utterances.
        reader: reads them.
        frontend: makes their features.
        world: who shares the work.
        hours: of audio that are enough.

    Raises:
        PlanError: no utterance can be used.
    """
    chosen = collection.sample(hours, "feature statistics")
    chunks = [chosen[begin : begin + CHUNK].tolist() for begin in range(0, len(chosen), CHUNK)]
    mine: dict[int, NDArray[np.float64]] = {}
    shown = Progress("measuring features", len(chosen), "utterances") if world.leads else nullcontext()
    with shown as progress:
        for number in range(world.rank, len(chunks), world.size):
            watching.go_on()
            if (part := _sums(chunks[number], reader, frontend, world.device)) is not None:
                mine[number] = part
            if progress is not None:
                # The other ranks are about as far.
                progress.advance(sum(map(len, chunks[number : number + world.size])))
        sums = {number: part for shared in world.gather(mine) for number, part in shared.items()}
    if not sums or not (total := np.sum([sums[number] for number in sorted(sums)], axis=0))[0].any():
        raise PlanError(
            f"train: none of {len(chosen):,} utterances has audio from which features can be measured; "
            "check the dataset with validate."
        )
    mean, squares = total[1:] / total[0]
    deviation = np.sqrt(np.maximum(squares - mean**2, 0.0))
    rounded = (np.stack((mean, deviation)) / _STEP).round() * _STEP
    found = torch.from_numpy(rounded.astype(np.float32))
    return found[0], found[1]


def _sums(
    utterances: Sequence[int], reader: Examples, frontend: Frontend, device: torch.device
) -> NDArray[np.float64] | None:
    """Frames, sums and sums of squares of each band [3, bins]; None where no audio can be used."""
    examples = []
    for utterance in utterances:
        try:
            examples.append(reader.example(utterance, epoch=0))
        except AudioError:  # the loader rejects it, and says so
            continue
    if not examples:
        return None
    batch = collate(examples)
    features, lengths = frontend.extract(batch.waveforms.to(device), batch.waveform_lengths.to(device))
    values = features.double()
    sums = torch.stack((lengths.sum().expand(values.shape[2]), values.sum((0, 1)), values.square().sum((0, 1))))
    return sums.cpu().numpy()
