"""One optimiser step, the algorithm of the whole system.

1. For each micro-batch of this rank: seed, forward, loss / planned count, backward. 2. The last backward adds the
gradients of all ranks. 3. One small exchange tells all ranks what happened in every micro-batch. 4. All take the same
branch: a loss that is not finite stops all; counts that fell short of the plan rescale the gradient. 5. Clip, step.
"""

from __future__ import annotations

import math
import resource
import time
from typing import TYPE_CHECKING

import torch

from allears import seeding
from allears.errors import TrainingError
from allears.training.exchange import Exchange, Verdict
from allears.types import Batch, StepReport, StepSeconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from allears.loading.loader import StepWork
    from allears.training.engine import Engine
    from allears.world import World

_DROPOUT = seeding.key("dropout")


class Stepper:
    """Takes steps.

    Args:
        engine: the model and how its gradients meet.
        optimizer: applies them.
        world: who else takes this step.
        micro_batches: places in a step.
        clip: bound of the global gradient norm.
        seed: of the run.
        names: ids of the utterances at some places of a plan step, for error messages.
        applied: steps applied so far.
    """

    def __init__(
        self,
        engine: Engine,
        optimizer: torch.optim.Optimizer,
        world: World,
        micro_batches: int,
        clip: float,
        seed: int,
        names: Callable[[int, list[int]], list[str]],
        applied: int = 0,
    ) -> None:
        self.engine = engine
        self.optimizer = optimizer
        self.world = world
        self.micro_batches = micro_batches
        self.clip = clip
        self.seed = seed
        self.names = names
        self.applied = applied

    def step(self, work: StepWork, learning_rate: float, data_seconds: float) -> StepReport:
        """Do one step and say what it did.

        Args:
            work: this rank's micro-batches.
            learning_rate: for this step.
            data_seconds: how long this rank waited for ``work``.

        Raises:
            TrainingError: on all ranks alike, when a loss or the gradient is not finite.
        """
        began = time.monotonic()
        self.optimizer.zero_grad(set_to_none=True)
        exchange = self._gradients(work)
        exposed = self.engine.exposed_seconds()
        reduced = time.monotonic()
        verdict = exchange.settle(self.engine.model, self.world)
        settled = time.monotonic()
        norm = self._apply(work, verdict, learning_rate)
        ended = time.monotonic()
        return StepReport(
            step=work.planned.step,
            applied=self.applied,
            epoch=work.planned.epoch,
            loss=verdict.loss / max(verdict.count, 1),
            grad_norm=norm,
            clipped=norm > self.clip,
            learning_rate=learning_rate,
            loss_scale=1.0,
            utterances=verdict.utterances,
            audio_seconds=work.planned.audio_seconds,
            tokens=verdict.count,
            padding=work.planned.padding,
            seconds=StepSeconds(data_seconds, reduced - began - exposed, exposed + settled - reduced, ended - settled),
            memory_bytes=_peak_memory(self.world.device),
            rejected=verdict.rejected,
        )

    def _gradients(self, work: StepWork) -> Exchange:
        """Run this rank's micro-batches; afterwards each ``grad`` holds the sum over all ranks."""
        exchange = Exchange(self.micro_batches, self.world.device)
        last = len(work.batches) - 1
        for n, (place, batch) in enumerate(zip(work.places, work.batches, strict=True)):
            if n < last:
                with self.engine.silence():
                    self._micro_batch(work, place, batch, exchange)
            else:
                self._micro_batch(work, place, batch, exchange, final=True)
        for place, rejected in work.rejected.items():
            exchange.reject(place, len(rejected))
        return exchange

    def _micro_batch(
        self, work: StepWork, place: int, batch: Batch | None, exchange: Exchange, final: bool = False
    ) -> None:
        if batch is None and not (final and self.engine.reduces):
            return
        torch.manual_seed(seeding.mixed(self.seed, work.planned.step, place, _DROPOUT))
        on_device = None if batch is None else batch.to(self.world.device)
        total, loss = self.engine.objective(on_device, work.planned.tokens)
        total.backward()
        if batch is not None:
            exchange.put(place, loss, len(batch.utterances))

    def _apply(self, work: StepWork, verdict: Verdict, learning_rate: float) -> float:
        """Clip and step, on all ranks alike; the gradient's norm."""
        step = work.planned.step
        if verdict.faulty:
            raise TrainingError(
                f"step {step}: the loss is not finite in micro-batch {', '.join(map(str, verdict.faulty))} "
                f"({_listed(self.names(step, verdict.faulty))}); "
                "listen to these, or lower optimizer.learning_rate.value."
            )
        parameters = [parameter for parameter in self.engine.model.parameters() if parameter.grad is not None]
        if verdict.count == 0 or not parameters:
            return 0.0
        if verdict.count != work.planned.tokens:
            scale = work.planned.tokens / verdict.count
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad.mul_(scale)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.clip))
        if not math.isfinite(norm):
            raise TrainingError(
                f"step {step}: every loss is finite but the gradient is not ({norm}); "
                "lower optimizer.learning_rate.value."
            )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.applied += 1
        return norm


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
