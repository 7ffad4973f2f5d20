"""One optimiser step, the algorithm of the whole system.

1. For each micro-batch of this rank: seed, forward, loss / planned count, backward. 2. The last backward adds the
gradients of all ranks. 3. One small exchange tells all ranks what happened in every micro-batch. 4. All take the same
branch: a float16 gradient that overflows halves the loss scale, and the same step is run again with the same seeds; a
guilty micro-batch, whose loss or gradient is not finite, is found, put into quarantine, and the step is run again as if
it were empty; counts that fell short of the plan rescale the gradient. 5. Clip, step.
"""

from __future__ import annotations

import math
import resource
import time
from typing import TYPE_CHECKING

import torch

from allears import seeding, watching
from allears.errors import TrainingError
from allears.layers.batch_norm import update_running
from allears.training.engine import objective
from allears.training.exchange import Exchange, Verdict
from allears.training.precision import LossScale, Precision, autocast
from allears.training.quarantine import Guilty, Quarantine, first_not_finite
from allears.training.stragglers import Stragglers
from allears.types import Batch, Loss, Rejection, StepReport, StepSeconds

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
        ids: of utterances, for error messages.
        quarantine: what is left out.
        precision: what forward computes in.
        scale: of the loss.
        before_change: called before a step changes anything that a checkpoint holds.
        asked_to_stop: whether this process was told to end soon; then all ranks know after the step.
        applied: steps applied so far.

    Attributes:
        stopping: whether any rank had been asked to stop when the last step was taken.
        stragglers: looks at how long each rank takes.
    """

    def __init__(
        self,
        engine: Engine,
        optimizer: torch.optim.Optimizer,
        world: World,
        micro_batches: int,
        clip: float,
        seed: int,
        ids: Callable[[list[int]], list[str]],
        quarantine: Quarantine,
        precision: Precision,
        scale: LossScale,
        before_change: Callable[[], None],
        asked_to_stop: Callable[[], bool],
        applied: int = 0,
    ) -> None:
        self.engine = engine
        self.optimizer = optimizer
        self.world = world
        self.micro_batches = micro_batches
        self.clip = clip
        self.seed = seed
        self.ids = ids
        self.quarantine = quarantine
        self.precision = precision
        self.scale = scale
        self.before_change = before_change
        self.asked_to_stop = asked_to_stop
        self.applied = applied
        self.stopping = False
        self.stragglers = Stragglers(world, micro_batches)

    def step(self, work: StepWork, learning_rate: float, data_seconds: float) -> tuple[StepReport, StepWork]:
        """Do one step; what it did, and this rank's part of it without what turned out to be guilty.

        Args:
            work: this rank's micro-batches.
            learning_rate: for this step.
            data_seconds: how long this rank waited for ``work``.

        Raises:
            TrainingError: on all ranks alike, when nothing of the step is finite, or too much is in quarantine.
        """
        began = time.monotonic()
        waited = 0.0
        while True:
            exchange = self._gradients(work)
            watching.move("reduce", work.planned.step)
            with watching.waiting():
                statistics, exposed = self.engine.finish()
            waited += exposed
            reduced = time.monotonic()
            compute = reduced - began - waited
            exchange.spend(work.places[0], data_seconds, compute)
            watching.move("exchange", work.planned.step)
            verdict = exchange.settle(self.world)
            settled = time.monotonic()
            waited += settled - reduced
            scale = self.scale.value
            norm = self._norm(work, verdict)
            if math.isfinite(norm):
                break
            if verdict.faulty or not self.scale.overflowed():
                work = self._without_guilty(work, verdict)
        self.stopping = verdict.stopping
        watching.move("save", work.planned.step)
        self.before_change()
        watching.move("update", work.planned.step)
        self._apply(verdict, statistics, learning_rate)
        ended = time.monotonic()
        report = StepReport(
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
            seconds=StepSeconds(data_seconds, compute, waited, ended - settled),
            memory_bytes=_peak_memory(self.world.device),
            rejected=verdict.rejected,
            slowest=self.stragglers.add(verdict.spent),
        )
        return report, work

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
        if self.asked_to_stop():
            exchange.stop(work.places[0])
        return exchange

    def _micro_batch(self, work: StepWork, place: int, batch: Batch, exchange: Exchange) -> None:
        watching.move("forward", work.planned.step, batch.utterances)
        loss, total = self._forward(work, place, batch)
        watching.move("backward", work.planned.step, batch.utterances)
        total.backward()  # type: ignore[no-untyped-call]
        exchange.put(place, loss, len(batch.utterances))

    def _forward(self, work: StepWork, place: int, batch: Batch) -> tuple[Loss, Tensor]:
        """The loss of a micro-batch, and what is to be differentiated."""
        torch.manual_seed(self._seed(work, place))
        with autocast(self.precision, self.world.device):
            loss: Loss = self.engine.model(batch.to(self.world.device))
            total = objective(loss, work.planned.tokens)
        return loss, total * self.scale.value

    def alone(self, work: StepWork, place: int, batch: Batch) -> Loss:
        """Run one micro-batch forward and backward by itself; its gradients are the model's until the next."""
        watching.go_on(batch.utterances)
        self.engine.begin()
        self.engine.clean(final=False)
        loss, total = self._forward(work, place, batch)
        total.backward()  # type: ignore[no-untyped-call]
        return loss

    def _seed(self, work: StepWork, place: int) -> int:
        return seeding.mixed(self.seed, work.planned.step, place, _DROPOUT)

    def _norm(self, work: StepWork, verdict: Verdict) -> float:
        """The gradient's norm, after it has been brought to what was really in the step, and clipped; NaN if faulty."""
        if verdict.faulty:
            return math.nan
        gradients = [parameter.grad for parameter in self.engine.model.parameters() if parameter.grad is not None]
        if verdict.count == 0 or not gradients:
            return 0.0
        if verdict.count != work.planned.tokens or self.scale.value != 1.0:
            torch._foreach_mul_(gradients, work.planned.tokens / (verdict.count * self.scale.value))
        norm = torch.nn.utils.get_total_norm(gradients)
        torch.nn.utils.clip_grads_with_norm_(self.engine.model.parameters(), self.clip, norm)
        return float(norm)

    def _without_guilty(self, work: StepWork, verdict: Verdict) -> StepWork:
        """Run each micro-batch alone, find which are guilty, quarantine them; ``work`` without them, on all ranks."""
        watching.move("repeat", work.planned.step)
        mine = [
            guilty
            for place, batch in zip(work.places, work.batches, strict=True)
            if batch is not None and (guilty := self._guilty(work, place, batch)) is not None
        ]
        self.engine.begin()
        found = sorted((one for part in self.world.gather(mine) for one in part), key=lambda one: one.place)
        step, guilty_places = work.planned.step, {one.place for one in found}
        if len(guilty_places) >= verdict.micro_batches or not found:
            where = f"in any of its {len(guilty_places)} micro-batches" if found else "of all micro-batches together"
            names = _listed([name for one in found for name in one.ids])
            raise TrainingError(
                f"step {step}: loss or gradient is not finite {where}{f' ({names})' if names else ''}; lower "
                "optimizer.learning_rate.value, or go on from an older checkpoint."
            )
        self.quarantine.add(found)
        reasons = {
            place: [
                Rejection(name, "quarantined", f"loss or gradient of its micro-batch is not finite in step {step}.")
                for name in self.ids(batch.utterances)
            ]
            for place, batch in zip(work.places, work.batches, strict=True)
            if batch is not None and place in guilty_places
        }
        return work.emptied(guilty_places, reasons)

    def _guilty(self, work: StepWork, place: int, batch: Batch) -> Guilty | None:
        """What is wrong with a micro-batch by itself, and which of its utterances are; None if nothing is."""
        first, loss = self._first_not_finite(work, place, batch)
        if first is None:
            return None
        alone = [batch.only(row) for row in range(len(batch.utterances))]
        own = [one.utterances[0] for one in alone if self._first_not_finite(work, place, one)[0] is not None]
        utterances = own or batch.utterances
        guilty = Guilty(work.planned.step, place, utterances, self.ids(utterances), first, loss)
        self.quarantine.keep(guilty, batch, self.engine.model, self._seed(work, place))
        return guilty

    def _first_not_finite(self, work: StepWork, place: int, batch: Batch) -> tuple[str | None, float]:
        """The first tensor that is not finite when ``batch`` is run by itself, and its loss."""
        return first_not_finite(self.engine.model, lambda: self.alone(work, place, batch))

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
