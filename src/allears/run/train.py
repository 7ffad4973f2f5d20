"""Settings and a dataset become a run: a folder in which the same command goes on where it stands."""

from __future__ import annotations

import contextlib
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from allears import seeding, stopping, watching
from allears.cluster.agreement import agree, versions
from allears.cluster.environment import describe, device_name, remarks
from allears.cluster.logs import logged
from allears.errors import CheckpointError, DataError
from allears.evaluation import result
from allears.evaluation.transcribe import hypotheses
from allears.files import locked, read_json, removed, write_json, write_yaml
from allears.loading.example import ExampleReader
from allears.loading.heaviest import heaviest
from allears.loading.loader import Loader
from allears.loading.plan import subtrees
from allears.loading.statistics import feature_statistics
from allears.reporting import say
from allears.run.material import material_of
from allears.run.outcome import keep_outcome, recall_outcome
from allears.run.recognise import evaluate
from allears.settings import flat
from allears.text.tokenizer import Tokenizer
from allears.training import checkpoint
from allears.training.average import average_folder, chosen, write_average
from allears.training.checksums import verify
from allears.training.engine import Engine
from allears.training.initial import take
from allears.training.ledger import Ledger
from allears.training.loop import MAY_CHANGE, Validation, run_steps
from allears.training.metrics import Journal, Metrics
from allears.training.optimizer import with_state
from allears.training.precision import LossScale, resolved
from allears.training.probe import first_difference, rehearse
from allears.training.quarantine import Quarantine
from allears.training.reduction import build_reduce, repeatable_kernels
from allears.training.saver import BackgroundSaver, Saver
from allears.training.step import Stepper

if TYPE_CHECKING:
    from allears.loading.collection import Collection
    from allears.loading.material import Material
    from allears.models.ctc import CtcModel
    from allears.run.settings import RunSettings
    from allears.training.reduction import Reduce, Reduction
    from allears.world import World

_INITIAL = seeding.key("initial weights")


def train(settings: RunSettings, run: Path, world: World) -> dict[str, Any]:
    """Train from where ``run`` stands to the end of the config; on every rank.

    Raises:
        AllearsError: see `allears.errors`; on all ranks where all can know.
    """
    watching.move("agree")
    agree(world, {**versions(), **dict(flat(settings.model_dump(mode="json")))})
    places = subtrees(settings.plan.micro_batches, world.size)[world.rank]
    if settings.training.reduction == "exact" and world.device.type == "cuda":
        repeatable_kernels()
    with ExitStack() as stack:
        if world.leads:
            stack.enter_context(locked(run, "training"))
            for remark in remarks(world, settings.plan.micro_batches):
                say(remark)
            checkpoint.set_damaged_aside(run)
        world.barrier()
        stack.enter_context(logged(run, world))
        # What is wrong with these is said now, not after hours.
        checkpoint.check_settings(run, settings.model_dump(mode="json"), MAY_CHANGE)
        if settings.init_from is not None and not checkpoint.checkpoints(run):
            chosen(Path(settings.init_from.run))
        for source in settings.test.values():
            source.open()
        recalled = world.from_leader(recall_outcome(settings, run) if world.leads else None)
        told = recalled or Training(settings, run, world, stack).to_the_end(places)
    if recalled and world.leads:
        say(f"this run is complete already, with {told['step']} steps")
    if not recalled and not told["stopped"]:
        tests = {name: evaluate(run, part, name, world) for name, part in settings.test.items()}
        told |= {"test": tests} if tests else {}
        if world.leads:
            keep_outcome(settings, run, told)
    cpu = sum(world.gather(time.process_time()))
    return {"run": str(run), **told, "processes": world.size, "cpu_seconds": round(cpu, 3)}


class Training:
    """One training with everything that it joins, on one rank.

    Args:
        settings: all of them.
        run: its folder.
        world: who else trains.
        stack: closes what is opened.
    """

    def __init__(self, settings: RunSettings, run: Path, world: World, stack: ExitStack) -> None:
        self.settings = settings
        self.dump = settings.model_dump(mode="json")
        self.run = run
        self.world = world
        self.stack = stack
        watching.move("dataset")
        self.material = self._material()
        stack.enter_context(watching.named(self._ids))
        found = {"the training data": self.material.collection.digest, "the tokenizer": self.material.tokenizer.digest}
        agree(world, found)
        self.held = {name: (part, self._reader(part)) for name, part in self.material.validation.items()}
        watching.move("model")
        self.model = self._initial_model()
        self.optimizer = with_state(settings.optimizer.build(self.model))
        digest = self.material.collection.digest
        watching.move("checkpoint")
        self.start = checkpoint.resume(run, self.model, self.optimizer, self.dump, digest, MAY_CHANGE)
        hours = self.material.collection.seconds / 3600
        self.total = settings.training.total(self.material.plans.steps_per_epoch, hours)
        self.learning_rate = settings.optimizer.learning_rate.scaled(settings.plan.step_seconds)
        self.precision = resolved(settings.training.precision, world.device)
        self.saver = self._saver()
        self.stepper = self._stepper()
        self._scored: str | None = None

    def to_the_end(self, places: range) -> dict[str, Any]:
        """All steps that are left, and what is to be told of them."""
        start, training, plans = self.start.step, self.settings.training, self.material.plans
        journal = Journal()
        if self.world.leads:
            write_yaml(self.run / "settings.yaml", self.dump)
            write_json(self.run / "environment.json", describe(self.world))
            self._announce()
            going_on = start < self.total
            journal = Metrics(self.run, start, training.tensorboard and going_on, training.digests)
        self.stack.enter_context(journal)
        loader = self.loader(places, self.total)
        if start < self.total:
            self._probe(loader, len(places))
        with stopping.heeded():
            outcome = run_steps(
                self.stepper,
                loader,
                loader.without,
                start,
                self.total,
                plans.steps_per_epoch,
                training,
                self.learning_rate,
                journal,
                self.stack.enter_context(Ledger(self.run, start, self.world)),
                self.validate,
                self.save,
            )
            watching.move("save", self.total - 1)
            self.saver.finish()
            stopped = outcome.stopped or any(self.world.gather(stopping.asked()))
        told = {
            "step": max(outcome.step, start),
            "stopped": stopped,
            "seconds": round(outcome.seconds, 3),
            "audio_seconds": round(outcome.audio_seconds, 1),
            "data_seconds": round(outcome.data_seconds, 3),
            "processes": self.world.size,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
        }
        if stopped:
            if self.world.leads:
                say(f"asked to stop: saved before step {outcome.step} of {self.total}; the same command goes on there")
            return told
        watching.move("validate", self.total - 1)
        rates = outcome.validation.rates or self.validate().rates
        watching.move("average", self.total - 1)
        averaged = self.average() if training.average else {}
        return {**told, "validation": rates, **averaged}

    def loader(self, places: range, stop: int) -> Loader:
        """Work of ``places`` in the steps from where the run stands to before ``stop``."""
        reader = self._reader(self.material.collection, learning=True)
        cuda = self.world.device.type == "cuda"
        return Loader(self.material.plans, reader, places, self.start.step, stop, self.settings.loader, pin=cuda)

    def reduce_by(self, reduction: Reduction) -> None:
        """Add gradients by ``reduction`` from the next step on; on all ranks."""
        self.stepper.engine.use(*self._reduction(reduction))

    def validate(self) -> Validation:
        """Rates of each validation set, and the one of the first that selects; on all ranks."""
        rates: dict[str, dict[str, float]] = {}
        headlines: dict[str, str] = {}
        select = self.settings.training.select
        for name, (part, source) in self.held.items():
            heard = hypotheses(self.model, part, source, self.material.tokenizer, self.world)
            rates[name], headline = result.brief(heard, part.languages())
            headlines[name] = headline if select == "auto" else select
        first = next(iter(rates), None)
        if first is not None:
            self._scored = f"{headlines[first]} of {self.held[first][0].digest}"
        return Validation(rates, headlines, None if first is None else rates[first][headlines[first]])

    def save(self, step: int, score: float | None) -> None:
        """Save what stands before plan step ``step``; on all ranks."""
        self.world.barrier()  # a checkpoint has no step that is missing in the ledger of some rank
        scale = self.stepper.scale
        self.saver.save(
            checkpoint.Position(
                step,
                self.stepper.applied,
                self.material.collection.digest,
                self.precision,
                scale.value if scale.scales else None,
                scale.steady,
                score,
                self._scored if score is not None else None,
                tuple(sorted(self.stepper.quarantine.utterances)),
            )
        )

    def average(self) -> dict[str, Any]:
        """Average the best checkpoints, and keep that if it is better than each of them; what to tell of it."""
        run, world = self.run, self.world
        trial, judged = run / "average.trial", run / "average.json"
        of = world.from_leader(self._best() if world.leads else [])
        names = [path.name for path in of]
        done = world.from_leader(judged.exists() and read_json(judged).get("of") == names)
        if done or len(of) < 2:
            return {}
        before = checkpoint.load_position(of[0]).score
        if world.leads:
            removed(average_folder(run))
            write_average(trial, of)
        world.barrier()
        checkpoint.load_model(trial, self.model)
        found = self.validate()
        better = found.score is not None and before is not None and found.score < before
        if world.leads:
            name, kind = next(iter(found.headlines.items()))
            verdict = "better than each, kept" if better else "not better, removed"
            say(f"average of {len(of)} checkpoints: {kind} of {name} {found.score:.2%}, best {before:.2%}: {verdict}")
            if better:
                trial.replace(average_folder(run))
            else:
                removed(trial)
            write_json(judged, {"of": names, "score": found.score, "best": before, "kept": better})
        world.barrier()
        return {"average": found.rates} if better else {}

    def _best(self) -> list[Path]:
        """The best checkpoints that are sound; what is not is said."""
        sound = []
        for path in checkpoint.best(self.run, self.settings.training.keep_best):
            try:
                verify(path, optimizer=False)
                sound.append(path)
            except CheckpointError as error:
                say(f"note: not averaged: {error}")
        return sound

    def _material(self) -> Material:
        """What is trained on, and the parts of the validation sets that are scored on the way."""
        settings = self.settings
        trained = bool(checkpoint.checkpoints(self.run))
        material = material_of(settings, settings.train, self.run, trained, self.world)
        hours = settings.training.validate_hours
        parts = {name: part.at_most(hours, "validation") for name, part in material.validation.items()}
        return replace(material, validation=parts)

    def _ids(self, utterances: list[int]) -> list[str]:
        return [self.material.collection.id(number) for number in utterances]

    def _reader(self, part: Collection, learning: bool = False) -> ExampleReader:
        settings, tokenizer = self.settings, self.material.tokenizer
        drawn = (settings.model.spec_augment, settings.augment) if learning else (None,)
        return self.stack.enter_context(ExampleReader(part, tokenizer, settings.seed, *drawn))

    def _initial_model(self) -> CtcModel:
        """The model before its first step: drawn by the seed, then what ``init_from`` names, then statistics."""
        torch.manual_seed(seeding.mixed(self.settings.seed, _INITIAL))
        collection, tokenizer = self.material.collection, self.material.tokenizer
        model = self.settings.model.build(tokenizer.size).to(self.world.device)
        if checkpoint.checkpoints(self.run):
            return model
        if (donor := self.settings.init_from) is not None:
            place = chosen(Path(donor.run))
            same = Tokenizer.load(place / "tokenizer").digest == tokenizer.digest
            said = take(model, place, donor.part, same, self.dump["model"])
            if self.world.leads:
                say(f"init_from: {said}")
        if model.frontend.lacks_statistics():
            statistics = feature_statistics(collection, self._reader(collection), model.frontend, self.world)
            model.frontend.set_statistics(*statistics)
        return model

    def _saver(self) -> Saver:
        """The leader's saves; memory for it is taken here."""
        if not self.world.leads:
            return Saver()
        parts = (self.model, self.optimizer, self.dump, self.material.tokenizer)
        training = self.settings.training
        return self.stack.enter_context(BackgroundSaver(self.run, *parts, training.keep, training.keep_best))

    def _stepper(self) -> Stepper:
        settings = self.settings
        start_scale = self.start.loss_scale or settings.training.loss_scale
        most = settings.training.most_quarantined
        quarantine = Quarantine(self.run, self.start.step, self.world, self.start.quarantined, most, self.precision)
        self.stack.enter_context(quarantine)
        reduce, tree = self._reduction(settings.training.reduction)
        return Stepper(
            Engine(self.model, reduce, self.world.size, tree),
            self.optimizer,
            self.world,
            settings.plan.micro_batches,
            settings.optimizer.clip,
            settings.seed,
            self._ids,
            quarantine,
            self.precision,
            LossScale(self.precision, start_scale, self.start.steady),
            self.saver.copied,
            stopping.asked,
            self.start.applied,
        )

    def _reduction(self, reduction: Reduction) -> tuple[Reduce | None, bool]:
        """How gradients are added over ranks, and whether those of a rank are added along the tree."""
        world, micro_batches = self.world, self.settings.plan.micro_batches
        return build_reduce(reduction, world, micro_batches) if world.size > 1 else None, reduction == "exact"

    def _probe(self, loader: Loader, places: int) -> None:
        """Find out on all ranks whether the largest micro-batches fit, and whether bits repeat; once for a setting."""
        world, dump, record = self.world, self.dump, self.run / "probe.json"
        named = ("plan", "augment", "tokenizer", "model")
        known = False
        of = {"device": device_name(world), "precision": self.precision, **{name: dump[name] for name in named}}
        with contextlib.suppress(DataError):  # a damaged record is none
            known = record.is_file() and read_json(record) == of
        if world.from_leader(known):
            return
        watching.move("probe")
        works = [loader.only(*at) for at in heaviest(self.material.plans, self.start.step)]
        rehearse(self.stepper, works, places)
        if self.settings.training.reduction == "exact":
            differs = world.gather(first_difference(self.stepper, works[-1]))
            for rank, tensor in enumerate(differs if world.leads else []):
                if tensor is not None:
                    say(
                        f"note: rank {rank} ran a micro-batch twice, and {tensor} came out in other bits: exact cannot "
                        "give the same bits on any number of processes here; see docs/exact.md."
                    )
        if world.leads:
            write_json(record, of)

    def _announce(self) -> None:
        material = self.material
        hours = material.collection.seconds / 3600
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        say(
            f"{len(material.collection):,} utterances, {hours:.2f} h · {parameters:,} parameters · "
            f"{self.precision} · {material.plans.steps_per_epoch} steps an epoch, {self.total} in all"
        )
        asked, rate = self.settings.optimizer.learning_rate, self.learning_rate.value
        if rate != asked.value:
            say(
                f"learning rate {rate:.4g}: {asked.value:g} at {asked.at_step_seconds:g} s a step, scaled "
                f"{asked.scale} to {self.settings.plan.step_seconds:g} s"
            )
        if self.precision == "fp16" and self.world.device.type == "cpu":
            say("note: fp16 on a CPU is for tests: it is several times slower than float32.")
        if self.start.precision not in {None, self.precision}:
            say(f"note: the steps before were computed in {self.start.precision}, these are in {self.precision}.")
        if self.start.step:
            going_on = self.start.step < self.total
            say(f"going on at step {self.start.step}" if going_on else "this run is complete already")
