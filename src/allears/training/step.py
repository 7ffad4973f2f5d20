"""One optimiser step, the algorithm of the whole system.

1. For each micro-batch of this rank: seed, forward, loss / planned count, backward. 2. The last backward adds the
gradients of all ranks. 3. One small exchange tells all ranks what happened in every micro-batch. 4. All take the same
branch: a loss that is not finite stops all; a float16 gradient that overflows halves the loss scale, and the same step
is run again with the same seeds; counts that fell short of the plan rescale the gradient. 5. Clip, step.
"""

from __future__ import annotations

import math
import resource
import time
from typing import TYPE_CHECKING

import torch

from allears import seeding
from allears.errors import TrainingError
from allears.layers.batch_norm import update_running
from allears.training.engine import objective
from allears.training.exchange import Exchange, Verdict
from allears.training.precision import LossScale, Precision, autocast
from allears.types import Batch, Loss, StepReport, StepSeconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

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
        precision: what forward computes in.
        scale: of the loss.
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
        precision: Precision,
        scale: LossScale,
        applied: int = 0,
    ) -> None:
        self.engine = engine
        self.optimizer = optimizer
        self.world = world
        self.micro_batches = micro_batches
        self.clip = clip
        self.seed = seed
        self.names = names
        self.precision = precision
        self.scale = scale
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
        exposed = 0.0
        while True:
            exchange = self._gradients(work)
            statistics, waited = self.engine.finish()
            exposed += waited
            reduced = time.monotonic()
            verdict = exchange.settle(self.world)
            settled = time.monotonic()
            scale = self.scale.value
            norm = self._norm(work, verdict)
            if math.isfinite(norm):
                break
            self._overflow(work.planned.step, norm)
        self._apply(verdict, statistics, learning_rate)
        ended = time.monotonic()
        return StepReport(
            step=work.planned.step,
            applied=self.applied,
            epoch=work.planned.epoch,
            loss=verdict.loss / max(verdict.count, 1),
            grad_norm=norm,
            clipped=norm > self.clip,
            learning_rate=learning_rate,
            loss_scale=scale,
            utterances=verdict.utterances,
            audio_seconds=work.planned.audio_seconds,
            tokens=verdict.count,
            padding=work.planned.padding,
            seconds=StepSeconds(data_seconds, reduced - began - exposed, exposed + settled - reduced, ended - settled),
            memory_bytes=_peak_memory(self.world.device),
            rejected=verdict.rejected,
        )

    def _gradients(self, work: StepWork) -> Exchange:
        """Run this rank's micro-batches; what happened in them."""
        exchange = Exchange(self.micro_batches, self.world.device)
        self.engine.begin()
        for place, batch in zip(work.places, work.batches, strict=True):
            self.engine.clean(final=place == work.places[-1])
            if batch is not None:
                self._micro_batch(work, place, batch, exchange)
            self.engine.done()
        for place, rejected in work.rejected.items():
            exchange.reject(place, len(rejected))
        return exchange

    def _micro_batch(self, work: StepWork, place: int, batch: Batch, exchange: Exchange) -> None:
        torch.manual_seed(seeding.mixed(self.seed, work.planned.step, place, _DROPOUT))
        with autocast(self.precision, self.world.device):
            loss: Loss = self.engine.model(batch.to(self.world.device))
            total = objective(loss, work.planned.tokens)
        (total * self.scale.value).backward()  # type: ignore[no-untyped-call]
        exchange.put(place, loss, len(batch.utterances))

    def _norm(self, work: StepWork, verdict: Verdict) -> float:
        """The gradient's norm, after it has been brought to what was really in the step, and clipped."""
        step = work.planned.step
        if verdict.faulty:
            raise TrainingError(
                f"step {step}: the loss is not finite in micro-batch {', '.join(map(str, verdict.faulty))} "
                f"({_listed(self.names(step, verdict.faulty))}); "
                "listen to these, or lower optimizer.learning_rate.value."
            )
        gradients = [parameter.grad for parameter in self.engine.model.parameters() if parameter.grad is not None]
        if verdict.count == 0 or not gradients:
            return 0.0
        if verdict.count != work.planned.tokens or self.scale.value != 1.0:
            torch._foreach_mul_(gradients, work.planned.tokens / (verdict.count * self.scale.value))
        norm = torch.nn.utils.get_total_norm(gradients)
        torch.nn.utils.clip_grads_with_norm_(self.engine.model.parameters(), self.clip, norm)
        return float(norm)

    def _overflow(self, step: int, norm: float) -> None:
        """Make the loss scale smaller, for another try at the same step."""
        if not self.scale.overflowed():
            at = f" at the smallest loss scale, {self.scale.value:g}," if self.scale.scales else ""
            raise TrainingError(
                f"step {step}: every loss is finite but the gradient{at} is not ({norm}); "
                "lower optimizer.learning_rate.value."
            )

    def _apply(self, verdict: Verdict, statistics: Tensor, learning_rate: float) -> None:
        """Move the weights and the running statistics, on all ranks alike."""
        update_running(self.engine.model, statistics)
        self.scale.held()
        if verdict.count == 0:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.applied += 1


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
