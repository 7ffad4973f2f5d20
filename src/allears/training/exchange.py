"""The one small exchange of a step: what every rank must know of every micro-batch, in one sum over all ranks.

[micro_batches × FIELDS]; each rank fills the rows of its own places, the rest is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from allears.types import Loss
    from allears.world import World

LOSS, COUNT, FAULTY, UTTERANCES, REJECTED, STOP, DATA, COMPUTE = range(8)
FIELDS = 8


class Spent(NamedTuple):
    """What one place says of time: whether it was run, and, if it is the first of a rank, that rank's own seconds."""

    ran: bool
    data: float
    compute: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all ranks know after the exchange.

    Attributes:
        loss: summed over the step.
        count: terms in that sum.
        utterances: used.
        rejected: planned but not usable.
        faulty: places whose loss is not finite.
        micro_batches: how many places held utterances.
        stopping: whether a rank was asked to stop.
        spent: of each place.
    """

    loss: float
    count: int
    utterances: int
    rejected: int
    faulty: list[int]
    micro_batches: int
    stopping: bool
    spent: list[Spent]


class Exchange:
    """Collects this rank's rows during a step."""

    def __init__(self, micro_batches: int, device: torch.device) -> None:
        self._rows = torch.zeros(micro_batches, FIELDS, dtype=torch.float64, device=device)

    def put(self, place: int, loss: Loss, utterances: int) -> None:
        """Record one micro-batch; nothing is read back from the device."""
        total = sum((value.detach() for value in loss.sums.values()), torch.zeros((), device=self._rows.device))
        finite = torch.isfinite(total)
        row = self._rows[place]
        row[LOSS] = torch.where(finite, total, torch.zeros_like(total))
        row[COUNT] = next(iter(loss.counts.values()))
        row[FAULTY] = ~finite
        row[UTTERANCES] = utterances

    def reject(self, place: int, utterances: int) -> None:
        """Record planned utterances of ``place`` that could not be used."""
        self._rows[place, REJECTED] = utterances

    def stop(self, place: int) -> None:
        """Record that this rank, which holds ``place``, was asked to stop."""
        self._rows[place, STOP] = 1.0

    def spend(self, place: int, data: float, compute: float) -> None:
        """Record for how many seconds this rank, whose first place it is, waited for data and computed."""
        self._rows[place, DATA] = data
        self._rows[place, COMPUTE] = compute

    def settle(self, world: World) -> Verdict:
        """Exchange, and say what all ranks now know."""
        world.sum(self._rows)
        values = self._rows.tolist()
        return Verdict(
            sum(row[LOSS] for row in values),
            round(sum(row[COUNT] for row in values)),
            round(sum(row[UTTERANCES] for row in values)),
            round(sum(row[REJECTED] for row in values)),
            [place for place, row in enumerate(values) if row[FAULTY]],
            sum(row[UTTERANCES] > 0 for row in values),
            any(row[STOP] > 0 for row in values),
            [Spent(row[UTTERANCES] > 0, row[DATA], row[COMPUTE]) for row in values],
        )
