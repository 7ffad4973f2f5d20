"""From the first step to the last: steps, reports, validation and checkpoints, all at steps that the config fixes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pydantic import Field, PositiveFloat, PositiveInt

from allears.reporting import Progress, duration, say
from allears.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allears.loading.loader import StepWork
    from allears.training.metrics import Journal
    from allears.training.optimizer import LearningRateSettings
    from allears.training.step import Stepper


class TrainingSettings(Settings):
    """How long, and what happens on the way.

    Attributes:
        epochs: passes over the data; ``steps`` goes before it.
        steps: optimiser steps in all.
        validate_every: steps between validations; none means once an epoch.
        save_every: steps between checkpoints; none means once an epoch. The last step is always saved.
        keep: how many checkpoints stay.
    """

    epochs: PositiveFloat = 10.0
    steps: PositiveInt | None = None
    validate_every: PositiveInt | None = None
    save_every: PositiveInt | None = None
    keep: int = Field(default=3, ge=1)

    def total(self, steps_per_epoch: int) -> int:
        """Optimiser steps in all."""
        return self.steps if self.steps is not None else max(1, round(self.epochs * steps_per_epoch))


@dataclass(frozen=True)
class Outcome:
    """How a training ended; the sums are of this attempt and rank."""

    step: int
    seconds: float
    data_seconds: float
    audio_seconds: float
    validation: dict[str, dict[str, float]]


def run_steps(
    stepper: Stepper,
    work: Iterable[StepWork],
    start: int,
    total: int,
    steps_per_epoch: int,
    settings: TrainingSettings,
    learning_rate: LearningRateSettings,
    journal: Journal,
    validate: Callable[[], dict[str, dict[str, float]]],
    save: Callable[[int], None],
) -> Outcome:
    """Take the steps from ``start`` to before ``total``; every rank takes the same ones.

    Args:
        stepper: takes a step.
        work: this rank's work from ``start`` on.
        start: first plan step.
        total: plan steps in all.
        steps_per_epoch: of the plan.
        settings: when to validate and save.
        learning_rate: by applied steps.
        journal: keeps the reports.
        validate: name → rates of each validation set; called on all ranks.
        save: writes a checkpoint before the given plan step; called on all ranks.
    """
    began = waited = time.monotonic()
    data_seconds = audio_seconds = 0.0
    found: dict[str, dict[str, float]] = {}
    step = start
    with Progress("training", total, "steps", start) if stepper.world.leads else _Silent() as progress:
        for item in work:
            got = time.monotonic()
            report = stepper.step(item, learning_rate.at(stepper.applied, total), got - waited)
            _tell_rejected(item)
            journal.write(report)
            data_seconds += report.seconds.data
            audio_seconds += report.audio_seconds
            step = report.step + 1
            progress.advance(1, f"epoch {report.epoch + 1} · loss {report.loss:.3f}")
            if _due(step, settings.validate_every or steps_per_epoch, total):
                found = validate()
                for name, values in found.items():
                    journal.validation(step, name, values)
                    if stepper.world.leads:
                        rates = " ".join(f"{key} {value:.4f}" for key, value in values.items())
                        say(f"step {step}/{total} · {name}: {rates} · {duration(time.monotonic() - began)}")
            if _due(step, settings.save_every or steps_per_epoch, total):
                save(step)  # last, so that whoever goes on from here has missed nothing
            waited = time.monotonic()
    return Outcome(step, time.monotonic() - began, data_seconds, audio_seconds, found)


def _due(step: int, every: int, total: int) -> bool:
    return step % every == 0 or step == total


def _tell_rejected(work: StepWork) -> None:
    for rejected in work.rejected.values():
        for rejection in rejected:
            say(f"note: utterance {rejection.id} is left out of step {work.planned.step}: {rejection.detail}")


class _Silent:
    """Progress that nobody sees."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def advance(self, amount: float = 1.0, note: str = "") -> None:
        """Say nothing."""
