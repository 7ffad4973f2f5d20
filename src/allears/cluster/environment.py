"""Where a run runs: what is kept with it, and what its user should know before it starts."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

import torch

from allears import __version__
from allears.loading.plan import idle_share

if TYPE_CHECKING:
    from allears.world import World


def describe(world: World) -> dict[str, Any]:
    """Versions, device and cores, for ``environment.json``."""
    return {
        "allears": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": str(world.device),
        "processes": world.size,
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
    }


def device_name(world: World) -> str:
    """What this process computes on."""
    return torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "CPU"


def remarks(world: World, micro_batches: int) -> list[str]:
    """What is used, what is left idle, and how to use it."""
    threads = torch.get_num_threads()
    processes = f"{world.size} process{'es' * (world.size > 1)}"
    said = [f"{processes} on {device_name(world)}, {threads} thread{'s' * (threads > 1)} each"]
    gpus = torch.cuda.device_count()
    if gpus > world.local_size:
        said.append(
            f"note: this machine has {gpus} GPUs, of which {world.local_size} are used; --processes {gpus} uses all."
        )
    idle = idle_share(micro_batches, world.size)
    if idle > 0:
        even = [size for size in range(1, micro_batches + 1) if idle_share(micro_batches, size) == 0]
        said.append(
            f"note: {world.size} processes do not divide {micro_batches} micro-batches, so that {idle:.0%} of their "
            f"time is idle; {', '.join(map(str, even))} would not."
        )
    return said
