"""From the first step to the last: steps, reports, validation and checkpoints, all at steps that the config fixes."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt

from allears import watching
from allears.reporting import Progress, duration, say
from allears.settings import Settings
from allears.training.digests import digests
from allears.training.precision import LARGEST, SMALLEST, Precision
from allears.training.reduction import Reduction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from allears.loading.loader import StepWork
    from allears.training.ledger import Ledger
    from allears.training.metrics import Journal
    from allears.training.optimizer import LearningRateSettings
    from allears.training.step import Stepper
    from allears.types import StepReport


class TrainingSettings(Settings):
    """How long, and what happens on the way.

    Attributes:
        epochs: passes over the data.
        hours: hours of audio that are trained on, passes counted again and again; goes before ``epochs``.
        steps: optimiser steps in all; goes before both.
        precision: ``float32``, ``bf16``, ``fp16`` or ``auto``: on CUDA bf16 where the card has it, else fp16; on a CPU
            float32.
        reduction: how gradients are added over micro-batches and ranks: ``exact``, the same bits on any number of
            ranks; ``fast``, by the backend's own all-reduce.
        loss_scale: what fp16's loss scale starts with; a power of two keeps every bit.
        validate_every: steps between validations; none means once an epoch.
        validate_hours: each validation scores at most this much of a set, the same part every time.
        save_every: steps between checkpoints; none means once an epoch. The last step is always saved.
        keep: how many of the newest checkpoints stay.
        keep_best: how many of the best ones stay besides: those of the lowest error rate on the first validation set.
        select: which error rate that is; ``auto`` follows the language.
        average: whether the best ones are averaged at the end; the average is kept if it is better than each.
        most_quarantined: how many utterances may turn out to give no finite loss or gradient before the run stops.
        digests: whether ``digests.jsonl`` gets the SHA-256 of each tensor after each step, to compare runs by.
        tensorboard: whether events for TensorBoard are written to the run.
    """

    epochs: PositiveFloat = 10.0
    hours: PositiveFloat | None = None
    steps: PositiveInt | None = None
    precision: Precision = "auto"
    reduction: Reduction = "exact"
    loss_scale: float = Field(default=2.0**16, ge=SMALLEST, le=LARGEST)
    validate_every: PositiveInt | None = None
    validate_hours: PositiveFloat = 1.0
    save_every: PositiveInt | None = None
    keep: int = Field(default=3, ge=1)
    keep_best: int = Field(default=3, ge=0)
    select: Literal["auto", "wer", "cer", "mer"] = "auto"
    average: bool = True
    most_quarantined: int = Field(default=100, ge=0)
    digests: bool = False
    tensorboard: bool = True

    def total(self, steps_per_epoch: int, hours_per_epoch: float) -> int:
        """Optimiser steps in all."""
        if self.steps is not None:
            return self.steps
        epochs = self.epochs if self.hours is None else self.hours / hours_per_epoch
        return max(1, round(epochs * steps_per_epoch))


MAY_CHANGE = (
    *(
        f"training.{name}"
        for name in TrainingSettings.model_fields
        if name not in {"precision", "loss_scale", "reduction"}
    ),
    "loader",
    "validation",
    "test",
)
"""Settings that a resumed run may change: what a step does depends on them by its learning rate at most."""


@dataclass(frozen=True)
class Validation:
    """Rates of each validation set, which of them counts, and the first set's of that kind; none without a set."""

    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    headlines: dict[str, str] = field(default_factory=dict)
    score: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a training ended, and whether it was stopped before its end; the sums are of this attempt and rank."""

    step: int
    stopped: bool
    seconds: float
    data_seconds: float
    audio_seconds: float
    validation: Validation


def run_steps(
    stepper: Stepper,
    work: Iterable[StepWork],
    without: Callable[[StepWork, AbstractSet[int]], StepWork],
    start: int,
    total: int,
    steps_per_epoch: int,
    settings: TrainingSettings,
    learning_rate: LearningRateSettings,
    journal: Journal,
    ledger: Ledger,
    validate: Callable[[], Validation],
    save: Callable[[int, float | None], None],
) -> Outcome:
    """Take the steps from ``start`` to before ``total``; every rank takes the same ones.

    Args:
        stepper: takes a step.
        work: this rank's work from ``start`` on.
        without: makes a step's work anew without some utterances.
        start: first plan step.
        total: plan steps in all.
        steps_per_epoch: of the plan.
        settings: when to validate and save.
        learning_rate: by applied steps.
        journal: keeps the reports.
        ledger: keeps which utterances were used.
        validate: scores the validation sets; called on all ranks.
        save: saves what stands before the given plan step, with its score if it has one; called on all ranks. A
            training that is asked to stop saves after the step and ends.
    """
    began = waited = time.monotonic()
    data_seconds = audio_seconds = 0.0
    found = Validation()
    step, stopped = start, False
    watching.move("data", start)
    with Progress("training", total, "steps", start) if stepper.world.leads else _Silent() as progress:
        for item in work:
            got = time.monotonic()
            item = without(item, stepper.quarantine.utterances)  # noqa: PLW2901
            _tell_rejected(item)
            scale = stepper.scale.value
            report, item = stepper.step(item, learning_rate.at(stepper.applied, total), got - waited)  # noqa: PLW2901
            if stepper.world.leads:
                _tell_step(stepper, report, scale)
            watching.move("record", report.step)
            ledger.write(item)
            journal.write(report)
            if settings.digests and stepper.world.leads:
                journal.digests(report.step, digests(stepper.engine.model, stepper.optimizer))
            data_seconds += report.seconds.data
            audio_seconds += report.audio_seconds
            step = report.step + 1
            progress.advance(1, f"epoch {report.epoch + 1} · loss {report.loss:.3f}")
            score = None
            stopped = stepper.stopping and step < total
            if not stopped and _due(step, settings.validate_every or steps_per_epoch, total):
                watching.move("validate", report.step)
                found = validate()
                score = found.score
                for name, values in found.rates.items():
                    journal.validation(step, name, values, found.headlines[name])
                    if stepper.world.leads:
                        rates = " ".join(f"{key} {value:.2%}" for key, value in values.items())
                        say(f"step {step}/{total} · {name}: {rates} · {duration(time.monotonic() - began)}")
            if stopped or _due(step, settings.save_every or steps_per_epoch, total):
                watching.move("save", report.step)
                save(step, score)  # last, so that whoever goes on from here has missed nothing
            if stopped:
                break
            watching.move("data", step)
            waited = time.monotonic()
    return Outcome(step, stopped, time.monotonic() - began, data_seconds, audio_seconds, found)


def _due(step: int, every: int, total: int) -> bool:
    return step % every == 0 or step == total


def _tell_step(stepper: Stepper, report: StepReport, scale: float) -> None:
    """Say what was unusual; the loss was scaled by ``scale`` in the step before."""
    if report.loss_scale < scale:
        say(
            f"note: step {report.step}: gradients overflowed in float16; it was run again with the loss "
            f"scaled by {report.loss_scale:g} instead of {scale:g}."
        )
    for note in stepper.stragglers.notes(report.step, sum(astuple(report.seconds))):
        say(note)


def _tell_rejected(work: StepWork) -> None:
    for rejected in work.rejected.values():
        for rejection in rejected:
            if rejection.reason == "quarantined":  # it has been said once
                continue
            say(f"note: utterance {rejection.id} is left out of step {work.planned.step}: {rejection.detail}")


class _Silent:
    """Progress that nobody sees."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def advance(self, amount: float = 1.0, note: str = "") -> None:
        """Say nothing."""
