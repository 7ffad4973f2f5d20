"""How a stretch of gradients is added over all ranks, in place and everywhere.

``exact`` adds along one binary tree over the micro-batches of a step, whatever rank holds which, so that the sum is the
same bits on any number of ranks. Ranks hold aligned subtrees of that tree (`allears.loading.plan.subtrees`). Where they
are equal, neighbours exchange halves at distances 1, 2, 4, …, then go the way back (recursive halving and doubling:
Thakur, Rabenseifner, Gropp, IJHPCA 2005); a ring's bytes in log2(ranks) rounds, the large ones between neighbours.
Where they are not, each rank gets one shard from all, adds it along the tree, and hands it round.

``fast`` is the backend's own all-reduce, whose order of additions depends on the number of ranks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Protocol

import torch
import torch.distributed as dist

from allears.loading.plan import subtrees

if TYPE_CHECKING:
    from torch import Tensor

    from allears.world import World

Reduction = Literal["exact", "fast"]


class Reduce(Protocol):
    """Add a flat tensor, whose length the number of ranks divides, over all ranks, in place."""

    def __call__(self, flat: Tensor) -> None: ...


def build_reduce(reduction: Reduction, world: World, micro_batches: int) -> Reduce:
    """The reduction for this world."""
    if reduction == "fast":
        return _all_reduce
    leaves = subtrees(micro_batches, world.size)
    if len({len(leaf) for leaf in leaves}) == 1:
        return _Halving(world)
    return _Shards(world, leaves)


def repeatable_kernels() -> None:
    """Let CUDA compute the same bits each time; what cannot is named by `allears.training.probe`.

    Source: torch's notes on reproducibility; cuBLAS takes its workspace's size from the environment when it starts.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False


def _all_reduce(flat: Tensor) -> None:
    dist.all_reduce(flat)


class _Halving:
    """Equal subtrees, so the number of ranks is a power of two."""

    def __init__(self, world: World) -> None:
        self.rank = world.rank
        self.distances = [1 << level for level in range(world.size.bit_length() - 1)]
        self._taken = torch.empty(0)

    def __call__(self, flat: Tensor) -> None:
        if len(self._taken) < len(flat) // 2:
            self._taken = torch.empty_like(flat[: len(flat) // 2])  # kept: new pages cost as much as the addition
        mine = flat
        halves: list[tuple[int, Tensor, Tensor]] = []
        for distance in self.distances:
            lower, upper = mine.chunk(2)
            mine, theirs = (upper, lower) if self.rank & distance else (lower, upper)
            halves.append((self.rank ^ distance, mine, theirs))
            part = self._taken[: len(mine)]
            _exchange(theirs, part, self.rank ^ distance)
            mine += part  # left + right or right + left: the same bits
        for other, mine, theirs in reversed(halves):
            _exchange(mine, theirs, other)


class _Shards:
    """Subtrees of different sizes."""

    def __init__(self, world: World, leaves: list[range]) -> None:
        self.rank = world.rank
        self.leaves = {leaf: rank for rank, leaf in enumerate(leaves)}
        self.places = range(leaves[0].start, leaves[-1].stop)

    def __call__(self, flat: Tensor) -> None:
        shards = torch.empty_like(flat)
        dist.all_to_all_single(shards, flat)
        dist.all_gather_into_tensor(flat, self._sum(shards.view(len(self.leaves), -1), self.places))

    def _sum(self, shards: Tensor, places: range) -> Tensor:
        """Row of the rank that holds all ``places``, or the sum of both halves of them."""
        if places in self.leaves:
            return shards[self.leaves[places]]
        middle = places.start + len(places) // 2
        left = self._sum(shards, range(places.start, middle))
        return left.add_(self._sum(shards, range(middle, places.stop)))


def _exchange(give: Tensor, take: Tensor, other: int) -> None:
    """Send ``give`` to rank ``other`` and receive ``take`` from it."""
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, give, other), dist.P2POp(dist.irecv, take, other)]):
        work.wait()
