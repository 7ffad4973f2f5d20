"""Where everything meets: settings and a dataset become a run; a run becomes text and error rates.

A run is a folder; the same command goes on where it stands.
"""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from pydantic import Field, field_validator

from allears import __version__, seeding
from allears.audio import files as audio
from allears.errors import CheckpointError, SettingsError
from allears.evaluation import result
from allears.evaluation.transcribe import Hypothesis, hypotheses, recognised
from allears.files import locked, write_json, written
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.loading.loader import EpochPlans, Loader, LoaderSettings
from allears.loading.plan import PlanSettings, idle_share, limits, subtrees
from allears.loading.tokens import token_counts
from allears.models.ctc import CtcModel, ModelSettings
from allears.reporting import say
from allears.settings import Settings, build, flat, read
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.training import checkpoint
from allears.training.engine import build_engine
from allears.training.loop import Journal, NoJournal, TrainingSettings, run_steps
from allears.training.metrics import Metrics
from allears.training.optimizer import OptimizerSettings
from allears.training.step import Stepper

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from allears.world import World

_INITIAL = seeding.key("initial weights")
_MAY_CHANGE = ("training.", "loader.", "test.", "validation.")
"""Settings that a resumed run may change: they do not alter what a given step does."""


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

    seed: int = Field(default=0, ge=0)
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


@dataclass(frozen=True)
class Material:
    """What a training works on: usable utterances, their plan, and the sets that are scored on the way."""

    collection: Collection
    plans: EpochPlans
    validation: dict[str, Collection]
    tokenizer: Tokenizer


def train(settings: RunSettings, run: Path, world: World) -> dict[str, Any]:
    """Train from where ``run`` stands to the end of the config; on every rank.

    Raises:
        AllearsError: see `allears.errors`; on all ranks where all can know.
    """
    places = subtrees(settings.plan.micro_batches, world.size)[world.rank]
    with ExitStack() as stack:
        if world.leads:
            stack.enter_context(locked(run, "training"))
            _describe(settings, world)
        material = gathered(settings, run, world)
        torch.manual_seed(seeding.mixed(settings.seed, _INITIAL))
        model = settings.model.build(material.tokenizer.size).to(world.device)
        optimizer = settings.optimizer.build(model)
        position = _position(settings, run, material, model, optimizer)
        total = settings.training.total(material.plans.steps_per_epoch)
        journal: Journal = NoJournal()
        if world.leads:
            _write_run(settings, run, world)
            journal = stack.enter_context(Metrics(run / "metrics.jsonl", position.step))
            _announce(material, model, position, total)
        readers = {
            name: stack.enter_context(ExampleReader(part, material.tokenizer, settings.seed, None))
            for name, part in material.validation.items()
        }
        reader = stack.enter_context(
            ExampleReader(material.collection, material.tokenizer, settings.seed, settings.model.spec_augment)
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
                name: scores(hypotheses(model, part, readers[name], material.tokenizer, world))
                for name, part in material.validation.items()
            }

        def save(step: int) -> None:
            at = checkpoint.Position(step, stepper.applied, material.collection.digest)
            if world.leads:
                dumped = settings.model_dump(mode="json")
                checkpoint.save(run, at, model, optimizer, dumped, material.tokenizer, settings.training.keep)
            world.barrier()

        work = Loader(
            material.plans, reader, places, position.step, total, settings.loader, world.device.type == "cuda"
        )
        outcome = run_steps(
            stepper,
            work,
            total,
            position.step,
            material.plans.steps_per_epoch,
            settings.training,
            settings.optimizer.learning_rate,
            journal,
            validate,
            save,
        )
    return {
        "run": str(run),
        "step": max(outcome.step, position.step),
        "seconds": round(outcome.seconds, 3),
        "audio_seconds": round(outcome.audio_seconds, 1),
        "data_seconds": round(outcome.data_seconds, 3),
        "processes": world.size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "validation": outcome.validation,
    }


def gathered(settings: RunSettings, run: Path, world: World) -> Material:
    """Open the data, make or load the tokenizer, count tokens, leave out what cannot be trained on; say so."""
    tell = say if world.leads else _quiet
    if not settings.train:
        raise SettingsError("train is empty: name a prepared dataset, such as dataset=PATH on the command line.")
    collection = Collection.open(settings.train)
    validation = {name: Collection.open([source]) for name, source in settings.validation.items()}
    if not validation:
        collection, held, said = collection.hold_out()
        tell(f"note: {said}")
        validation = {"held_out": held} if len(held) else {}
    if world.leads:
        _tokenizer(settings, run, collection, tell)
    world.barrier()
    tokenizer = Tokenizer.load(run / "tokenizer")
    if world.leads:
        token_counts(collection, tokenizer)
    world.barrier()
    counts = token_counts(collection, tokenizer)
    usable, left_out = usable_utterances(collection, counts, settings)
    for rule, number in left_out.items():
        tell(f"note: {number:,} of {len(collection):,} utterances are left out: {rule}.")
    collection, counts = collection.only(usable), counts[usable]
    plans = EpochPlans(collection.lengths, counts[:, 0], settings.plan, settings.seed)
    return Material(collection, plans, validation, tokenizer)


def usable_utterances(
    collection: Collection, counts: NDArray[np.int32], settings: RunSettings
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Which utterances can be trained on, and how many each rule leaves out."""
    limited = limits(collection.lengths, settings.plan)
    frames = settings.model.output_frames(collection.lengths)
    left_out = dict(limited.left_out)
    silent = limited.usable & (counts[:, 0] == 0)
    crowded = limited.usable & ~silent & (frames < counts[:, 1])
    for rule, those in (
        ("no token is left of the text", silent),
        ("more tokens than the model has frames (CTC cannot align them)", crowded),
    ):
        if those.any():
            left_out[rule] = int(those.sum())
    usable = limited.usable & ~silent & ~crowded
    if not usable.any():
        raise SettingsError(
            f"train: none of the {len(collection):,} utterances can be trained on: "
            + "; ".join(f"{number:,} {rule}" for rule, number in left_out.items())
            + "; use a tokenizer with more pieces, or check the transcripts."
        )
    return usable, left_out


def load(run: Path, world: World) -> tuple[RunSettings, CtcModel, Tokenizer, Path]:
    """The newest model of a run (or of a checkpoint folder): settings, model, tokenizer and the checkpoint."""
    path = run if (run / "state.json").exists() else checkpoint.newest(run)
    checkpoint.load_position(path)
    settings = build(RunSettings, read(str(path / "settings.yaml")), str(path / "settings.yaml"))
    tokenizer = Tokenizer.load(path / "tokenizer")
    model = settings.model.build(tokenizer.size)
    checkpoint.load_model(path, model)
    return settings, model.to(world.device).eval(), tokenizer, path


def evaluate(run: Path, source: SourceSettings, name: str, world: World) -> tuple[dict[str, Any], list[Hypothesis]]:
    """Decode a dataset with the newest model of ``run``, count errors, and keep both in the run."""
    _, model, tokenizer, path = load(run, world)
    collection = Collection.open([source])
    with ExampleReader(collection, tokenizer, 0, None) as reader:
        found = hypotheses(model, collection, reader, tokenizer, world)
    rates = result.rates(found, sorted({index.language(int(row)) for index, rows in collection.parts for row in rows}))
    rates |= {"run": str(run), "checkpoint": path.name, "dataset": source.dataset, "split": source.split}
    if world.leads:
        result.keep(run / "evaluation" / name, rates, found)
    world.barrier()
    return rates, found


def transcribe(run: Path, inputs: Sequence[Path], world: World) -> list[tuple[str, str]]:
    """(name, text) of audio files, or of every utterance of a dataset, by the newest model of ``run``.

    Raises:
        AudioError: a file cannot be read.
    """
    _, model, tokenizer, _ = load(run, world)
    if len(inputs) == 1 and inputs[0].is_dir():
        collection = Collection.open([SourceSettings(dataset=str(inputs[0]))])
        with ExampleReader(collection, tokenizer, 0, None) as reader:
            return [(one.id, one.text) for one in hypotheses(model, collection, reader, tokenizer, world)]
    return [(str(path), tokenizer.decode(recognised(model, audio.read(str(path)), world))) for path in inputs]


def make_tokenizer(dataset: Path, split: str | None, out: Path, pieces: int) -> tuple[Tokenizer, str]:
    """A tokenizer from a dataset's transcripts, written to ``out``, and a remark on it (often empty)."""
    collection = Collection.open([SourceSettings(dataset=str(dataset), split=split)])
    settings = build(TokenizerSettings, {"pieces": pieces}, "tokenizer")
    made, remark = Tokenizer.train([collection.text(utterance) for utterance in range(len(collection))], settings)
    made.save(out)
    return made, remark


def scores(found: Sequence[Hypothesis]) -> dict[str, float]:
    """The rates of a validation."""
    rates = result.rates(found)
    return {name: rates[name] for name in ("wer", "cer")}


def _tokenizer(settings: RunSettings, run: Path, collection: Collection, tell: Any) -> None:
    """Make sure that the run has its tokenizer: its own from before, the one named, or a new one."""
    if (run / "tokenizer" / "tokenizer.json").exists():
        return
    if settings.tokenizer.path is not None:
        tokenizer = Tokenizer.load(Path(settings.tokenizer.path))
    else:
        texts = [collection.text(utterance) for utterance in range(len(collection))]
        tokenizer, remark = Tokenizer.train(texts, settings.tokenizer)
        if remark:
            tell(f"note: {remark}")
    tokenizer.save(run / "tokenizer")


def _position(
    settings: RunSettings, run: Path, material: Material, model: CtcModel, optimizer: torch.optim.Optimizer
) -> checkpoint.Position:
    """Where the run stands: its newest checkpoint, loaded, or the beginning."""
    digest = material.collection.digest
    found = checkpoint.checkpoints(run)
    if not found:
        return checkpoint.Position(0, 0, digest)
    path = found[-1]
    _same_settings(settings, path)
    position = checkpoint.load_position(path)
    if position.digest != digest:
        raise CheckpointError(
            f"{path} was trained on other utterances than train now names; name the same data, or another --run folder."
        )
    checkpoint.load_model(path, model)
    checkpoint.load_optimizer(path, model, optimizer)
    return position


def _same_settings(settings: RunSettings, path: Path) -> None:
    before = dict(flat(read(str(path / "settings.yaml"))))
    now = dict(flat(settings.model_dump(mode="json")))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name) and not f"{name}.".startswith(_MAY_CHANGE):
            raise SettingsError(
                f"{name} is {now.get(name)!r} but {path} was trained with {before.get(name)!r}; "
                "set it back to go on, or name another --run folder to start anew."
            )


def _describe(settings: RunSettings, world: World) -> None:
    threads = torch.get_num_threads()
    idle = idle_share(settings.plan.micro_batches, world.size)
    say(f"{world.size} process{'es' * (world.size > 1)} on {world.device.type}, {threads} threads each")
    if torch.cuda.device_count() > world.local_size:
        say(
            f"note: this machine has {torch.cuda.device_count()} GPUs; --processes {torch.cuda.device_count()} uses all."
        )
    if idle > 0:
        good = [n for n in range(1, settings.plan.micro_batches + 1) if idle_share(settings.plan.micro_batches, n) == 0]
        say(
            f"note: {world.size} processes do not divide {settings.plan.micro_batches} micro-batches: they idle "
            f"{idle:.0%} of the time; {', '.join(map(str, good))} do not."
        )


def _announce(material: Material, model: CtcModel, position: checkpoint.Position, total: int) -> None:
    hours = int(material.collection.lengths.sum()) / 16_000 / 3600
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(
        f"{len(material.collection):,} utterances, {hours:.2f} h · {parameters:,} parameters · "
        f"{material.plans.steps_per_epoch} steps an epoch, {total} in all"
    )
    if position.step:
        say(f"going on at step {position.step}" if position.step < total else "this run is complete already")


def _write_run(settings: RunSettings, run: Path, world: World) -> None:
    with written(run / "settings.yaml") as file:
        file.write(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True).encode())
    write_json(
        run / "environment.json",
        {
            "allears": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.platform(),
            "device": str(world.device),
            "processes": world.size,
            "threads": torch.get_num_threads(),
            "cores": len(os.sched_getaffinity(0)),
        },
    )


def _quiet(_: str) -> None:
    """What ranks say that do not lead."""
