"""What a run has learnt, put to use: its model, the error rates on a dataset, the text of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from allears import watching
from allears.errors import AllearsError, SettingsError
from allears.evaluation import result, transcripts
from allears.evaluation.recordings import transcribed_files
from allears.evaluation.transcribe import BatchLimits, Transcript, hypotheses, transcribed
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.manifest import manifest
from allears.run.settings import RunSettings
from allears.settings import build, read
from allears.text.tokenizer import Tokenizer
from allears.training import checkpoint
from allears.training.average import chosen
from allears.training.checksums import verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allears.models.ctc import CtcModel
    from allears.types import Utterance
    from allears.world import World


def load(run: Path, world: World) -> tuple[CtcModel, Tokenizer, Path]:
    """The model that stands for a run, or that of a checkpoint folder: model, tokenizer, checkpoint.

    The first rank chooses, so that all have the same one even while the run goes on; where that training removes it
    before it has been read, all choose again.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    while True:
        path = _chosen(run, world)
        try:
            model, tokenizer = _read(path)
            failed = None
        except (AllearsError, OSError) as error:
            failed = error
        gone = failed is not None and not path.exists()
        if any(world.gather(gone)):
            continue
        if failed is not None:
            raise failed
        return model.to(world.device).eval(), tokenizer, path


def _chosen(run: Path, world: World) -> Path:
    """The leader's choice; its error is raised on all ranks: none waits for another."""
    path: Path | AllearsError = run
    try:
        path = chosen(run) if world.leads else run
    except AllearsError as error:
        path = error
    path = world.from_leader(path)
    if isinstance(path, AllearsError):
        raise path
    return path


def _read(path: Path) -> tuple[CtcModel, Tokenizer]:
    verify(path, optimizer=False)
    checkpoint.load_position(path)
    settings = build(RunSettings, read(str(path / "settings.yaml")), str(path / "settings.yaml"))
    tokenizer = Tokenizer.load(path / "tokenizer")
    model = settings.model.build(tokenizer.size)
    checkpoint.load_model(path, model)
    return model, tokenizer


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
    watching.move("evaluate")
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
    watching.move("transcribe")
    if out is not None:
        transcripts.check_out(out, inputs)
    whole = len(inputs) == 1 and inputs[0].is_dir()
    if split is not None and not whole:
        raise SettingsError(f"--split {split} is for a dataset, and the inputs are files; leave it out.")
    for place in inputs:
        if place.is_dir() and not (place / "index").exists():
            raise SettingsError(f"{place} is a folder, but not a prepared dataset; name its audio files.")
        if place.is_dir() and not whole:
            raise SettingsError(f"{place} is a dataset, and more is named beside it; name one dataset, or audio files.")
        if inputs.count(place) > 1:
            raise SettingsError(f"{place} is named twice, and results are kept by name; name each file once.")
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
