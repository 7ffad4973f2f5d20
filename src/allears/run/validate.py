"""A preflight: a dataset is read once, what is found is said and written; nothing in the dataset is changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from allears import files
from allears.errors import DataError, DatasetError
from allears.manifest.index import Index
from allears.preflight import page
from allears.preflight.findings import find
from allears.preflight.manifests import compare
from allears.preflight.report import Report
from allears.preflight.settings import PreflightSettings
from allears.preflight.survey import survey
from allears.preflight.trainable import Recipe, trainable
from allears.reporting import say
from allears.run.material import tokenizer_of
from allears.run.settings import settings_of
from allears.settings import build, overridden

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PREFIX = "preflight."


def validate(
    dataset: Path, config: str | None, overrides: Sequence[str], out: Path, processes: int | None = None
) -> Report:
    """Examine ``dataset`` and write the report to ``out``.

    Args:
        dataset: a prepared one.
        config: whose training is looked at; None for none.
        overrides: key=value of the config, and of `PreflightSettings` behind ``preflight.``.
        out: folder of the report.
        processes: that read; None for one on each processor.

    Raises:
        DatasetError: the dataset is missing, incomplete, of another version or empty.
        SettingsError: a setting is wrong.
        DataError: the report cannot be written.
    """
    ours = [item.removeprefix(PREFIX) for item in overrides if item.startswith(PREFIX)]
    others = [item for item in overrides if not item.startswith(PREFIX)]
    settings = build(PreflightSettings, overridden({}, ours), "preflight")
    index = Index.open(dataset)
    if not len(index):
        raise DatasetError(f"{dataset} has no utterances; prepare a corpus that has some.")
    recipe = recipe_of(index, config, others) if config is not None else None
    _tried(out)  # before anything takes hours
    read = survey(index, settings, processes or len(os.sched_getaffinity(0)))
    found = find(read, settings) + compare(read, settings)
    if recipe is not None:
        found += trainable(index, recipe, settings, lambda text: say(f"note: {text}"))
    report = Report(read, found, settings, config or "")
    page.write(report, out)
    report.write(out)
    return report


def recipe_of(index: Index, config: str, overrides: Sequence[str]) -> Recipe:
    """What of a config, or of a run with its tokenizer, decides which utterances of a dataset can be trained on.

    Raises:
        SettingsError: a setting is wrong.
        DatasetError: the dataset has no such split.
    """
    given = {item.partition("=")[0] for item in overrides}
    unnamed = "train.split" in given and "train.dataset" not in given
    own = [f"train.dataset={index.folder}"] if unnamed else []
    settings, run = settings_of(config, [*own, *overrides])
    tokenizer = settings.tokenizer
    if run is not None:
        tokenizer = tokenizer.model_copy(update={"path": str(tokenizer_of(run, say))})
    return Recipe(
        index.rows(settings.train[0].split if settings.train else None),
        settings.plan,
        tokenizer,
        settings.augment,
        settings.model.output_frames,
        settings.model.features.normalisation,
        settings.seed,
    )


def _tried(out: Path) -> None:
    """Write a file there, and take it away."""
    trial = out / ".trial"
    try:
        with files.writing(out):
            with files.written(trial) as file:
                file.write(b"")
            trial.unlink()
    except DataError as error:
        raise DataError(f"{str(error).rstrip('.')}, with --out FOLDER.") from error


def shares(report: Report) -> list[tuple[str, str, str, str, str]]:
    """Rows of a table: kind, gravity, utterances, share, the worst."""
    rows: list[tuple[str, str, str, str, str]] = []
    for one in report.findings:
        count = len(one.rows)
        worst = ", ".join(example["id"] for example in report.examples(one, 2))
        share = f"{count / report.utterances:.2%}" if count else "all of it"
        rows.append((one.kind.name, one.kind.gravity, f"{count:,}" if count else "-", share, worst))
    return rows
