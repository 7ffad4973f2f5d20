"""Where everything meets: settings and a dataset become a run; a run becomes text and error rates.

A run is a folder; the same command goes on where it stands.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field, field_validator

from allears import seeding
from allears.audio import files as audio
from allears.cluster.environment import describe, remarks
from allears.evaluation import result
from allears.evaluation.transcribe import hypotheses, recognised
from allears.files import locked, write_json, write_yaml
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.loading.loader import Loader, LoaderSettings
from allears.loading.material import Material, gather
from allears.loading.plan import PlanSettings, subtrees
from allears.models.ctc import CtcModel, ModelSettings
from allears.reporting import say
from allears.settings import Settings, build, read
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.training import checkpoint
from allears.training.engine import build_engine
from allears.training.loop import TrainingSettings, run_steps
from allears.training.metrics import Journal, Metrics
from allears.training.optimizer import OptimizerSettings
from allears.training.step import Stepper
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from allears.world import World

_INITIAL = seeding.key("initial weights")
_MAY_CHANGE = ("training", "loader", "validation", "test")
"""Settings that a resumed run may change: they do not alter what a step does."""


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
    with ExitStack() as stack:
        if world.leads:
            stack.enter_context(locked(run, "training"))
            for remark in remarks(world, settings.plan.micro_batches):
                say(remark)
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
        for source in settings.test.values():
            source.open()  # what is wrong with it is said now, not after the training
        torch.manual_seed(seeding.mixed(settings.seed, _INITIAL))
        model = settings.model.build(material.tokenizer.size).to(world.device)
        optimizer = settings.optimizer.build(model)
        digest = material.collection.digest
        position = checkpoint.resume(run, model, optimizer, settings.model_dump(mode="json"), digest, _MAY_CHANGE)
        total = settings.training.total(material.plans.steps_per_epoch)
        if world.leads:
            write_yaml(run / "settings.yaml", settings.model_dump(mode="json"))
            write_json(run / "environment.json", describe(world))
            _announce(material, model, position.step, total)
        journal = Metrics(run / "metrics.jsonl", position.step) if world.leads else Journal()
        stack.enter_context(journal)

        def reader(part: Collection, training: bool) -> ExampleReader:
            bands = settings.model.spec_augment if training else None
            return stack.enter_context(ExampleReader(part, material.tokenizer, settings.seed, bands))

        held = {name: (part, reader(part, training=False)) for name, part in material.validation.items()}
        work = Loader(
            material.plans,
            reader(material.collection, training=True),
            places,
            position.step,
            total,
            settings.loader,
            pin=world.device.type == "cuda",
        )
        stepper = Stepper(
            build_engine(model, world),
            optimizer,
            world,
            settings.plan.micro_batches,
            settings.optimizer.clip,
            settings.seed,
            lambda step, at: [material.collection.id(n) for n in material.plans.members(step, at)],
            position.applied,
        )

        def validate() -> dict[str, dict[str, float]]:
            return {
                name: result.brief(hypotheses(model, part, source, material.tokenizer, world))
                for name, (part, source) in held.items()
            }

        def save(step: int) -> None:
            if world.leads:
                at = checkpoint.Position(step, stepper.applied, digest)
                dump = settings.model_dump(mode="json")
                checkpoint.save(run, at, model, optimizer, dump, material.tokenizer, settings.training.keep)
            world.barrier()

        outcome = run_steps(
            stepper,
            work,
            position.step,
            total,
            material.plans.steps_per_epoch,
            settings.training,
            settings.optimizer.learning_rate,
            journal,
            validate,
            save,
        )
    tests = {name: evaluate(run, source, name, world) for name, source in settings.test.items()}
    return {
        "run": str(run),
        "step": max(outcome.step, position.step),
        "seconds": round(outcome.seconds, 3),
        "audio_seconds": round(outcome.audio_seconds, 1),
        "data_seconds": round(outcome.data_seconds, 3),
        "processes": world.size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "validation": outcome.validation,
        **({"test": tests} if tests else {}),
    }


def _announce(material: Material, model: CtcModel, step: int, total: int) -> None:
    seconds = int(material.collection.lengths.sum()) / SAMPLE_RATE
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(
        f"{len(material.collection):,} utterances, {seconds / 3600:.2f} h · {parameters:,} parameters · "
        f"{material.plans.steps_per_epoch} steps an epoch, {total} in all"
    )
    if step:
        say(f"going on at step {step}" if step < total else "this run is complete already")


def load(run: Path, world: World) -> tuple[CtcModel, Tokenizer, Path]:
    """The newest model of a run, or the model of a checkpoint folder: model, tokenizer, checkpoint.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    path = run if (run / "state.json").exists() else checkpoint.newest(run)
    checkpoint.load_position(path)
    settings = build(RunSettings, read(str(path / "settings.yaml")), str(path / "settings.yaml"))
    tokenizer = Tokenizer.load(path / "tokenizer")
    model = settings.model.build(tokenizer.size)
    checkpoint.load_model(path, model)
    return model.to(world.device).eval(), tokenizer, path


def evaluate(run: Path, source: SourceSettings, name: str, world: World) -> dict[str, Any]:
    """Decode a dataset with the newest model of ``run``, count errors, keep both in ``run/evaluation/name``."""
    model, tokenizer, path = load(run, world)
    collection = Collection.open([source])
    with ExampleReader(collection, tokenizer, 0, None) as reader:
        found = hypotheses(model, collection, reader, tokenizer, world)
    rates = result.rates(found, collection.languages())
    rates |= {"run": str(run), "checkpoint": path.name, "dataset": source.dataset, "split": source.split}
    if world.leads:
        result.keep(run / "evaluation" / name, rates, found)
    world.barrier()
    return rates


def transcribe(run: Path, inputs: Sequence[Path], world: World) -> list[tuple[str, str]]:
    """(name, text) of audio files, or of every utterance of a dataset, by the newest model of ``run``.

    Raises:
        AudioError: a file cannot be read.
    """
    model, tokenizer, _ = load(run, world)
    if len(inputs) == 1 and inputs[0].is_dir():
        collection = Collection.open([SourceSettings(dataset=str(inputs[0]))])
        with ExampleReader(collection, tokenizer, 0, None) as reader:
            return [(one.id, one.text) for one in hypotheses(model, collection, reader, tokenizer, world)]
    return [(str(path), tokenizer.decode(recognised(model, audio.read(str(path)), world))) for path in inputs]


def make_tokenizer(source: SourceSettings, out: Path, pieces: int) -> tuple[Tokenizer, str]:
    """A tokenizer from a dataset's transcripts, written to ``out``, and a remark on it (often empty)."""
    collection = Collection.open([source])
    settings = build(TokenizerSettings, {"pieces": pieces}, "tokenizer")
    made, remark = Tokenizer.train([collection.text(utterance) for utterance in range(len(collection))], settings)
    made.save(out)
    return made, remark
