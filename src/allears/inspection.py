"""What is inspected, gathered as a training would meet it: an utterance in an epoch, a step of a plan."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from rapidfuzz import process

from allears import seeding
from allears.errors import DatasetError, SettingsError
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.loading.statistics import feature_statistics
from allears.pictures.batch import PlannedStep, planned_step
from allears.pictures.utterance import Heard, hear
from allears.reporting import say
from allears.run.material import material_of
from allears.run.recognise import load
from allears.run.settings import RunSettings, settings_of
from allears.text.normalise import normalise
from allears.text.tokenizer import Tokenizer
from allears.training import checkpoint
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ALONE = World(0, 1, 0, 1, torch.device("cpu"))
STATISTICS_HOURS = 0.1
"""Audio from which the features' statistics are measured where no run has them: enough for a picture."""


class _NoTokenizer:
    """Stands where a tokenizer does as long as there is none: no text has tokens."""

    def encode(self, _: str) -> NDArray[np.int32]:
        return np.zeros(0, np.int32)


def find(collection: Collection, name: str) -> int:
    """The number of the utterance with the id ``name``.

    Raises:
        DatasetError: there is none; the message names the ids that are nearest.
    """
    for utterance in np.flatnonzero(collection.keys == np.uint64(seeding.key(name))).tolist():
        if collection.id(utterance) == name:
            return int(utterance)
    ids = (collection.id(utterance) for utterance in range(len(collection)))
    near = [repr(found) for found, *_ in process.extract(name, ids, limit=3)]
    folders = ", ".join(str(index.folder) for index, _ in collection.parts)
    remedy = f"the nearest are {', '.join(near)}." if near else "it is empty."
    raise DatasetError(f"{folders or 'the dataset'} has no utterance {name!r}; {remedy}")


def utterance(dataset: Path, name: str, config: str, run: Path | None, epoch: int) -> Heard:
    """One utterance as a training hears it in ``epoch``.

    Args:
        dataset: a prepared dataset.
        name: the utterance's id.
        config: whose features and augmentation are shown, when there is no run.
        run: whose newest model's features, augmentation and tokenizer are shown.
        epoch: from 0, as in the metrics of a run.

    Raises:
        DatasetError: there is no such dataset or utterance.
        AudioError: its audio cannot be used.
    """
    collection = Collection.open([SourceSettings(dataset=str(dataset))])
    number = find(collection, name)
    tokenizer: Tokenizer | None = None
    if run is not None:
        model, tokenizer, checkpoint_path = load(run, _ALONE)
        settings, _ = settings_of(str(checkpoint_path))
    else:
        settings, _ = settings_of(config)
        if settings.tokenizer.path is not None:
            tokenizer = Tokenizer.load(Path(settings.tokenizer.path))
        model = settings.model.build(2 if tokenizer is None else tokenizer.size).eval()
    encoder = tokenizer or cast("Tokenizer", _NoTokenizer())
    features = settings.model.features
    kind = f"{features.kind}, normalisation {features.normalisation}"
    with (
        ExampleReader(collection, encoder, settings.seed, None) as plain,
        ExampleReader(collection, encoder, settings.seed, settings.model.spec_augment, settings.augment) as drawn,
    ):
        if model.frontend.lacks_statistics():
            model.frontend.set_statistics(
                *feature_statistics(collection, plain, model.frontend, _ALONE, STATISTICS_HOURS)
            )
            kind += f" (measured on {min(STATISTICS_HOURS, collection.seconds / 3600):.2g} h of this dataset)"
        before, after = plain.example(number, epoch), drawn.example(number, epoch)
    text = collection.text(number)
    return hear(
        model,
        before,
        after,
        id=name,
        text=text,
        normalised=tokenizer.normalise(text) if tokenizer else normalise(text, settings.tokenizer.text),
        speaker=collection.speaker(number),
        tokens=None if tokenizer is None else [(token, tokenizer.decode([token])) for token in before.tokens.tolist()],
        epoch=epoch,
        kind=kind,
    )


def batch(place: str, dataset: Path | None, split: str | None, step: int, overrides: Sequence[str] = ()) -> PlannedStep:
    """Plan step ``step`` of a training by a config, or of a run.

    Args:
        place: a config, or the folder of a run, whose tokenizer is then used.
        dataset: what is trained on instead of what the settings name.
        split: the part of ``dataset``.
        step: from 0, in any epoch.
        overrides: settings to change, key=value.

    Raises:
        SettingsError: no dataset is named.
        PlanError: nothing can be trained on.
    """
    settings, run = settings_of(place, overrides)
    with tempfile.TemporaryDirectory() as temporary:
        sources = _sources(settings, dataset, split, place)
        material = material_of(settings, sources, run or Path(temporary), run is not None, _ALONE)
        if run is not None and checkpoint.checkpoints(run):
            trained = checkpoint.load_position(checkpoint.newest(run)).digest
            if trained != material.collection.digest:
                say(f"note: {run} was trained on other utterances, so its own step {step} was another one.")
        return planned_step(material, settings.plan, step)


def _sources(settings: RunSettings, dataset: Path | None, split: str | None, place: str) -> tuple[SourceSettings, ...]:
    """The settings' own sources, or ``dataset`` in the place of the only one."""
    if dataset is None and split is None:
        return settings.train
    if len(settings.train) > 1:
        raise SettingsError(f"{place} trains on {len(settings.train)} sources: leave DATASET and --split out.")
    (own,) = settings.train or (None,)
    if dataset is None and own is None:
        raise SettingsError(f"{place} names no dataset: name a prepared one after it.")
    chosen = str(dataset) if dataset is not None or own is None else own.dataset
    return (SourceSettings(dataset=chosen, split=split or (own.split if own else None)),)
