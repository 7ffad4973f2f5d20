"""How gradients meet: alone, or summed over all ranks by DistributedDataParallel while backward still runs."""

from __future__ import annotations

import contextlib
import inspect
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from allears.types import Loss

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor
    from torch._C._distributed_c10d import GradBucket

    from allears.types import Batch
    from allears.world import World


# torch 2.13 renamed the option that keeps buffers of different ranks apart.
_RENAMED = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
_NO_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if _RENAMED else "broadcast_buffers": False}


class Objective(nn.Module):
    """A model with its loss divided by the planned counts of the whole step, so that gradients need only be added."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch | None, planned: int) -> tuple[Tensor, Loss]:
        """The scalar to differentiate, and the loss it came from; without a batch, a zero that reaches each weight."""
        if batch is None:
            zero = torch.stack([parameter.sum() * 0.0 for parameter in self.model.parameters()]).sum()
            return zero, Loss({}, {})
        loss: Loss = self.model(batch)
        total = torch.stack([value / max(planned, 1) for value in loss.sums.values()]).sum()
        return total, loss


class Engine:
    """One process alone.

    Attributes:
        model: the bare model.
        reduces: whether the last backward of a step must run even without a batch.
    """

    reduces = False

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.objective: nn.Module = Objective(model)

    def silence(self) -> AbstractContextManager[None]:
        """Inside, backward does not communicate."""
        return contextlib.nullcontext()

    def exposed_seconds(self) -> float:
        """How long the last backward waited for other ranks after its own work was done."""
        return 0.0


class DdpEngine(Engine):
    """Gradients are summed over all ranks, bucket by bucket, during the last backward of a step.

    DDP's division by the world size and its broadcast of buffers are off: counts are global already, and batch norm's
    statistics travel in the step's exchange.
    """

    reduces = True

    def __init__(self, model: nn.Module, world: World) -> None:
        super().__init__(model)
        self._last_launch = 0.0
        self._wrapped = DistributedDataParallel(
            self.objective,
            device_ids=[world.device.index] if world.device.type == "cuda" else None,
            **_NO_BUFFERS,
            gradient_as_bucket_view=True,
        )
        self._wrapped.register_comm_hook(None, lambda _, bucket: self._sum(bucket))
        self.objective = self._wrapped

    def _sum(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        self._last_launch = time.monotonic()
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        assert work is not None
        summed: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
        return summed

    def silence(self) -> AbstractContextManager[None]:
        return self._wrapped.no_sync()

    def exposed_seconds(self) -> float:
        return max(time.monotonic() - self._last_launch, 0.0) if self._last_launch else 0.0


def build_engine(model: nn.Module, world: World) -> Engine:
    """The engine for this world."""
    return Engine(model) if world.size == 1 else DdpEngine(model, world)
