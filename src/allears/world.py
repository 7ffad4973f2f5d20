"""The process group as a value: who I am among how many, and the few things that are done together.

`World` alone hears only itself; `start` returns one that talks to the others when a launcher's environment variables
say that there are others. Nothing else asks for the process group.
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from allears import watching
from allears.errors import SettingsError
from allears.processes import RENDEZVOUS, THREADS, keep_freed_memory
from allears.stores import launchers

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """One process that trains with nobody else, or (for tests) pretends to be one of many.

    Attributes:
        rank: this process among all, from 0.
        size: how many processes there are.
        local_rank: this process among those of its machine.
        local_size: how many processes this machine runs.
        device: where this process computes.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes and prints."""
        return self.rank == 0

    def sum(self, tensor: torch.Tensor) -> None:
        """Add ``tensor`` over all processes, in place, everywhere."""

    def barrier(self) -> None:
        """Wait until all processes are here."""

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks, on every process."""
        return [value]

    def from_leader(self, value: T) -> T:
        """The leader's value, on every process."""
        return value

    def close(self) -> None:
        """Leave the group."""


class GroupWorld(World):
    """One process of a real group (gloo on CPUs, nccl on CUDA)."""

    @watching.waiting()
    def sum(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    @watching.waiting()
    def barrier(self) -> None:
        dist.barrier()

    @watching.waiting()
    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    @watching.waiting()
    def from_leader(self, value: T) -> T:
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0)
        return cast("T", values[0])

    def close(self) -> None:
        dist.destroy_process_group()


def start(timeout_seconds: float = 600.0) -> World:
    """The world that the environment describes: torchrun's variables, or none for a lone process.

    Raises:
        SettingsError: a variable is missing or not a number.
    """
    rank, size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    local_rank, local_size = _number("LOCAL_RANK", rank), _number("LOCAL_WORLD_SIZE", size)
    if not 0 <= rank < size:
        raise SettingsError(f"RANK must be from 0 to WORLD_SIZE - 1 ({size - 1}), not {rank}; mend the launcher.")
    cuda = torch.cuda.is_available()
    if cuda and local_rank >= torch.cuda.device_count():
        raise SettingsError(
            f"LOCAL_RANK {local_rank} has no GPU: this machine has {torch.cuda.device_count()}; "
            "start at most one process a GPU."
        )
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        keep_freed_memory()
    if THREADS in os.environ:
        torch.set_num_threads(max(1, _number(THREADS, 1)))
    elif "OMP_NUM_THREADS" not in os.environ or local_size > 1:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local_size))
    if size == 1:
        return World(0, 1, 0, 1, device)
    store = launchers(timeout_seconds)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=os.environ.get(RENDEZVOUS, "env://") if store is None else None,
        store=store,
        rank=rank,
        world_size=size,
        timeout=dt.timedelta(seconds=timeout_seconds),
        device_id=device if cuda else None,
    )
    return GroupWorld(rank, size, local_rank, local_size, device)


def _number(name: str, default: int) -> int:
    value = os.environ.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise SettingsError(f"{name} must be a whole number, not {value!r}; mend the launcher.") from None
