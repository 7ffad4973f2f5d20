"""``allears validate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from allears.preflight.report import Report


def validate(
    dataset: Path = typer.Argument(help="A prepared dataset."),
    config: str | None = typer.Argument(
        None, help="A YAML file, or the name of a shipped config: what a training by it would make of the dataset."
    ),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Settings to change, such as train.split=train or preflight.noisy=15."
    ),
    out: Path | None = typer.Option(None, help="Folder for the report; DATASET/validation by default."),
    processes: int | None = typer.Option(None, min=1, help="Processes that read; one on each processor by default."),
    strict: bool = typer.Option(False, "--strict", help="Exit with 1 when there is a fault (warnings are none)."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Preflight: read every utterance once and name what will break or slow a training, before it starts.

    Writes report.html (with pictures, and the worst to listen to), report.json, and problems.jsonl with every
    utterance that has one. Exit code 0 says that all was examined, whatever was found, unless --strict is given.

    Example: allears validate data/mine tiny train.split=train
    """
    from allears.manifest.index import VALIDATION
    from allears.reporting import show_json
    from allears.run.validate import validate as examine

    given = list(overrides or [])
    if config is not None and "=" in config:
        given, config = [config, *given], None
    place = out or dataset / VALIDATION
    report = examine(dataset, config, given, place, processes)
    _show(report, place)
    if as_json:
        show_json(_json(report, place))
    sys.exit(1 if strict and report.faults else 0)


def _show(report: Report, out: Path) -> None:
    from allears.reporting import counted, show, table
    from allears.run.validate import shares

    hours = float(report.survey.seconds.sum()) / 3600
    examined = f"{counted(report.utterances, 'utterance')}, {hours:,.2f} hours"
    if not report.findings:
        show(f"{report.survey.index.folder}: {examined}: nothing was found.")
    else:
        table(
            f"{report.survey.index.folder}: {examined}",
            ["problem", "gravity", "utterances", "share", "the worst"],
            shares(report),
        )
        for one in report.findings:
            detail = f" ({one.whole.rstrip('.')})" if one.whole else ""
            show(f"{one.kind.name}: {one.kind.told(report.settings)}{detail}; {one.kind.remedy}.")
    show(f"{out / 'report.html'} shows it; report.json and problems.jsonl are beside it.")


def _json(report: Report, out: Path) -> dict[str, object]:
    return {
        "utterances": report.utterances,
        "problems": report.problems,
        "faults": report.faults,
        "by_kind": {one.kind.name: len(one.rows) for one in report.findings},
        "out": str(out),
    }
