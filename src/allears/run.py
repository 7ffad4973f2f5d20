"""Where everything meets: settings and a dataset become a run; a run becomes text and error rates.

A run is a folder; the same command goes on where it stands.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field, field_validator

from allears import seeding
from allears.cluster.environment import describe, remarks
from allears.errors import AllearsError, SettingsError
from allears.evaluation import result, transcripts
from allears.evaluation.recordings import transcribed_files
from allears.evaluation.transcribe import BatchLimits, Transcript, hypotheses, transcribed
from allears.files import locked, removed, write_json, write_yaml
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.loading.loader import Loader, LoaderSettings
from allears.loading.material import Material, gather
from allears.loading.plan import PlanSettings, subtrees
from allears.loading.statistics import feature_statistics
from allears.manifest import manifest
from allears.models.ctc import CtcModel, ModelSettings
from allears.reporting import say
from allears.settings import Settings, build, read
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.training import checkpoint
from allears.training.average import average_folder, chosen, write_average
from allears.training.engine import build_engine
from allears.training.initial import InitialSettings, take
from allears.training.loop import MAY_CHANGE, TrainingSettings, Validation, run_steps
from allears.training.metrics import Journal, Metrics
from allears.training.optimizer import OptimizerSettings
from allears.training.precision import LossScale, Precision, resolved
from allears.training.step import Stepper
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from allears.types import Utterance
    from allears.world import World

_INITIAL = seeding.key("initial weights")


class RunSettings(Settings):
    """All settings of a training.

    Attributes:
        seed: of everything random.
        train: what is trained on.
        validation: sets that are scored on the way; the first one selects. None holds out a part of ``train``.
        test: sets that are scored at the end.
        plan: what a step is.
        loader: how batches are made ahead.
        tokenizer: how text becomes tokens.
        model: what is trained.
        optimizer: how weights move.
        training: how long, and what happens on the way.
        init_from: a run whose weights are started from; none draws them. Just its folder means all of it.
    """

    seed: int = Field(default=0, ge=0, lt=2**63)
    train: tuple[SourceSettings, ...] = ()
    validation: dict[str, SourceSettings] = {}
    test: dict[str, SourceSettings] = {}
    plan: PlanSettings = PlanSettings()
    loader: LoaderSettings = LoaderSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    training: TrainingSettings = TrainingSettings()
    init_from: InitialSettings | None = None

    @field_validator("init_from", mode="before")
    @classmethod
    def _folder(cls, value: Any) -> Any:
        """``init_from: FOLDER`` means all of it."""
        return {"run": value} if isinstance(value, str) else value

    @field_validator("train", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        """``train: {dataset: …}`` means a list of one."""
        return [value] if isinstance(value, dict) else value


def train(settings: RunSettings, run: Path, world: World) -> dict[str, Any]:
    """Train from where ``run`` stands to the end of the config; on every rank.

    Raises:
        AllearsError: see `allears.errors`; on all ranks where all can know.
    """
    places = subtrees(settings.plan.micro_batches, world.size)[world.rank]
    training = settings.training
    dump = settings.model_dump(mode="json")
    with ExitStack() as stack:
        if world.leads:
            stack.enter_context(locked(run, "training"))
            for remark in remarks(world, settings.plan.micro_batches):
                say(remark)
        material = _material(settings, run, world)
        collection, plans, tokenizer = material.collection, material.plans, material.tokenizer
        for source in settings.test.values():
            source.open()  # what is wrong with it is said now, not after the training

        def reader(part: Collection, learning: bool = False) -> ExampleReader:
            bands = settings.model.spec_augment if learning else None
            return stack.enter_context(ExampleReader(part, tokenizer, settings.seed, bands))

        model = _initial_model(settings, run, material, reader(collection), world)
        optimizer = settings.optimizer.build(model)
        position = checkpoint.resume(run, model, optimizer, dump, collection.digest, MAY_CHANGE)
        total = training.total(plans.steps_per_epoch, int(collection.lengths.sum()) / SAMPLE_RATE / 3600)
        learning_rate = settings.optimizer.learning_rate.scaled(settings.plan.step_seconds)
        precision = resolved(training.precision, world.device)
        journal = Journal()
        if world.leads:
            write_yaml(run / "settings.yaml", dump)
            write_json(run / "environment.json", describe(world))
            _announce(settings, material, model, precision, learning_rate.value, position.step, total)
            events = run / "tensorboard" if training.tensorboard and position.step < total else None
            journal = Metrics(run / "metrics.jsonl", position.step, events)
        stack.enter_context(journal)
        stepper = Stepper(
            build_engine(model, world),
            optimizer,
            world,
            settings.plan.micro_batches,
            settings.optimizer.clip,
            settings.seed,
            lambda step, at: [collection.id(n) for n in plans.members(step, at)],
            precision,
            LossScale(precision, position.loss_scale or training.loss_scale, position.steady),
            position.applied,
        )
        held = {name: (part, reader(part)) for name, part in material.validation.items()}

        def validate() -> Validation:
            return _validation(model, held, training, tokenizer, world)

        def save(step: int, score: float | None) -> None:
            if world.leads:
                scale = stepper.scale
                at = checkpoint.Position(step, stepper.applied, collection.digest, scale.value, scale.steady, score)
                checkpoint.save(run, at, model, optimizer, dump, tokenizer, training.keep, training.keep_best)
            world.barrier()

        outcome = run_steps(
            stepper,
            Loader(
                plans,
                reader(collection, learning=True),
                places,
                position.step,
                total,
                settings.loader,
                pin=world.device.type == "cuda",
            ),
            position.step,
            total,
            plans.steps_per_epoch,
            training,
            learning_rate,
            journal,
            validate,
            save,
        )
        averaged = _average(run, training, model, validate, world) if outcome.step > position.step else {}
    tests = {name: evaluate(run, source, name, world) for name, source in settings.test.items()}
    return {
        "run": str(run),
        "step": max(outcome.step, position.step),
        "seconds": round(outcome.seconds, 3),
        "cpu_seconds": round(sum(world.gather(time.process_time())), 3),
        "audio_seconds": round(outcome.audio_seconds, 1),
        "data_seconds": round(outcome.data_seconds, 3),
        "processes": world.size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "validation": outcome.validation.rates,
        **averaged,
        **({"test": tests} if tests else {}),
    }


def _material(settings: RunSettings, run: Path, world: World) -> Material:
    """What is trained on, and the parts of the validation sets that are scored on the way."""
    material = gather(
        settings.train,
        settings.validation,
        settings.plan,
        settings.tokenizer,
        settings.model.output_frames,
        settings.seed,
        run,
        bool(checkpoint.checkpoints(run)),
        world,
        lambda text: say(f"note: {text}") if world.leads else None,
    )
    hours = settings.training.validate_hours
    parts = {name: part.at_most(hours, "validation") for name, part in material.validation.items()}
    return replace(material, validation=parts)


def _initial_model(
    settings: RunSettings, run: Path, material: Material, reader: ExampleReader, world: World
) -> CtcModel:
    """The model before its first step: drawn by the seed, then what ``init_from`` names, then feature statistics."""
    torch.manual_seed(seeding.mixed(settings.seed, _INITIAL))
    model = settings.model.build(material.tokenizer.size).to(world.device)
    if checkpoint.checkpoints(run):
        return model
    if settings.init_from is not None:
        place = chosen(Path(settings.init_from.run))
        same = Tokenizer.load(place / "tokenizer").digest == material.tokenizer.digest
        said = take(model, place, settings.init_from.part, same)
        if world.leads:
            say(f"init_from: {said}")
    if model.frontend.lacks_statistics():
        model.frontend.set_statistics(*feature_statistics(material.collection, reader, model.frontend, world))
    return model


def _validation(
    model: CtcModel,
    held: dict[str, tuple[Collection, ExampleReader]],
    training: TrainingSettings,
    tokenizer: Tokenizer,
    world: World,
) -> Validation:
    """Rates of each validation set, and the one of the first that selects."""
    rates: dict[str, dict[str, float]] = {}
    score = None
    for name, (part, source) in held.items():
        heard = hypotheses(model, part, source, tokenizer, world)
        rates[name] = result.brief(heard)
        if score is None:
            select = result.rates(heard, part.languages())["headline"] if training.select == "auto" else training.select
            score = rates[name][select]
    return Validation(rates, score)


def _average(
    run: Path, training: TrainingSettings, model: CtcModel, validate: Callable[[], Validation], world: World
) -> dict[str, Any]:
    """Average the best checkpoints, and keep that if it is better than each of them; what to tell of it."""
    if world.leads:
        removed(average_folder(run))
    of = world.from_leader(checkpoint.best(run, training.keep_best))
    if not training.average or len(of) < 2:
        return {}
    before = checkpoint.load_position(of[0]).score
    if world.leads:
        write_average(run, of)
    world.barrier()
    checkpoint.load_model(average_folder(run), model)
    found = validate()
    better = found.score is not None and before is not None and found.score < before
    if world.leads:
        verdict = "better than each, kept" if better else "not better, removed"
        say(f"average of {len(of)} checkpoints: {found.score:.4f} against {before:.4f}: {verdict}")
        if not better:
            removed(average_folder(run))
    world.barrier()
    return {"average": found.rates} if better else {}


def _announce(
    settings: RunSettings,
    material: Material,
    model: CtcModel,
    precision: Precision,
    rate: float,
    step: int,
    total: int,
) -> None:
    seconds = int(material.collection.lengths.sum()) / SAMPLE_RATE
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(
        f"{len(material.collection):,} utterances, {seconds / 3600:.2f} h · {parameters:,} parameters · {precision} · "
        f"{material.plans.steps_per_epoch} steps an epoch, {total} in all"
    )
    asked = settings.optimizer.learning_rate
    if rate != asked.value:
        say(
            f"learning rate {rate:.4g}: {asked.value:g} at {asked.at_step_seconds:g} s a step, scaled {asked.scale} to "
            f"{settings.plan.step_seconds:g} s"
        )
    if step:
        say(f"going on at step {step}" if step < total else "this run is complete already")


def load(run: Path, world: World) -> tuple[CtcModel, Tokenizer, Path]:
    """The model that stands for a run, or that of a checkpoint folder: model, tokenizer, checkpoint.

    The first rank chooses, so that all have the same one even while the run goes on.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    path: Path | AllearsError = run
    try:
        path = chosen(run) if world.leads else run
    except AllearsError as error:
        path = error
    path = world.from_leader(path)
    if isinstance(path, AllearsError):  # on all ranks: none waits for another
        raise path
    checkpoint.load_position(path)
    settings = build(RunSettings, read(str(path / "settings.yaml")), str(path / "settings.yaml"))
    tokenizer = Tokenizer.load(path / "tokenizer")
    model = settings.model.build(tokenizer.size)
    checkpoint.load_model(path, model)
    return model.to(world.device).eval(), tokenizer, path


def evaluate(
    run: Path,
    source: SourceSettings,
    name: str | None,
    world: World,
    out: Path | None = None,
    normaliser: str = result.NORMALISER,
    batch: int | None = None,
    worst: int = result.WORST,
) -> dict[str, Any]:
    """Decode a dataset, count errors, keep both in ``out`` or in the run's ``evaluation/name``; the same on every rank.

    Args:
        run: a run or one of its checkpoints.
        source: the dataset.
        name: of the result; none names it after the dataset, the split and the checkpoint.
        world: shares the work.
        out: folder of the result.
        normaliser: see `allears.scoring.normalise`.
        batch: utterances decoded at a time at most.
        worst: how many utterances the result tells of.

    Raises:
        AllearsError: see `allears.errors`.
    """
    parts = [Path(source.dataset).resolve().name, source.split, run.resolve().name if result.is_checkpoint(run) else ""]
    name = name or "-".join(part for part in parts if part)
    folder = result.place(run, name, out)
    result.scored([], normaliser)  # a wrong name is told before the work
    model, tokenizer, path = load(run, world)
    collection = Collection.open([source])
    with ExampleReader(collection, tokenizer, 0, None) as reader:
        limits = BatchLimits(utterances=batch)
        found = hypotheses(model, collection, reader, tokenizer, world, limits, task=f"evaluate {name}")
    rates: dict[str, Any] = {}
    if world.leads:
        scored = result.scored(found, normaliser)
        rates = {
            **result.summary(scored, collection.languages(), normaliser, worst),
            "name": name,
            "folder": str(folder),
            "run": str(run),
            "checkpoint": path.name,
            "dataset": source.dataset,
            "split": source.split,
        }
        result.keep(folder, rates, scored)
    return world.from_leader(rates)


def transcribe(
    run: Path, inputs: Sequence[Path], world: World, split: str | None = None, out: Path | None = None
) -> list[tuple[str, Transcript]]:
    """(name, what is said) of audio files, or of every utterance of a dataset; the same on every rank.

    Args:
        run: a run or one of its checkpoints.
        inputs: files, or one dataset.
        world: shares the work.
        split: a part of the dataset.
        out: manifest to write.

    Raises:
        AllearsError: see `allears.errors`; a file that cannot be read is told of in its transcript instead.
    """
    if out is not None:
        transcripts.check_out(out, inputs)
    whole = len(inputs) == 1 and inputs[0].is_dir()
    if split is not None and not whole:
        raise SettingsError(f"--split {split} is for a dataset, and the inputs are files; leave it out.")
    model, tokenizer, _ = load(run, world)
    lines: Iterable[Utterance]
    if whole:
        collection = Collection.open([SourceSettings(dataset=str(inputs[0]), split=split)])
        with ExampleReader(collection, tokenizer, 0, None) as reader:
            found = transcribed(model, collection, reader, tokenizer, world, BatchLimits(), task="transcribe")
        names, lines = [collection.id(n) for n in range(len(collection))], transcripts.of_dataset(collection, found)
    else:
        found = transcribed_files(model, inputs, tokenizer, world, BatchLimits())
        names, lines = [str(path) for path in inputs], transcripts.of_files(inputs, found)
    if out is not None and world.leads:
        manifest.write(out, lines)
    return list(zip(names, found, strict=True))


def make_tokenizer(source: SourceSettings, out: Path, values: dict[str, Any]) -> tuple[Tokenizer, str]:
    """A tokenizer from a dataset's transcripts, written to ``out``, and a remark on it (often empty).

    Args:
        source: the dataset.
        out: a folder.
        values: of `TokenizerSettings`.

    Raises:
        SettingsError: a value is wrong, or the transcripts hold nothing to learn from.
    """
    settings = build(TokenizerSettings, values, "tokenizer")
    collection = Collection.open([source])
    made, remark = Tokenizer.train([collection.text(utterance) for utterance in range(len(collection))], settings)
    made.save(out)
    return made, remark
