"""``allears evaluate``."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def evaluate(
    run: Path = typer.Argument(help="Folder of a run, or of one of its checkpoints."),
    dataset: Path = typer.Argument(help="A prepared dataset."),
    split: str = typer.Option(None, help="A part of the dataset. Default: all of it."),
    name: str = typer.Option(None, help="Name of the result in the run. Default: the dataset's and the split's."),
    out: Path = typer.Option(None, help="Folder of the result. Default: evaluation/NAME in the run."),
    normaliser: str = typer.Option("basic", help="Applied to both texts first: basic or verbatim."),
    batch: int = typer.Option(None, min=1, help="Utterances decoded at a time at most. Default: 120 s of audio."),
    worst: int = typer.Option(5, min=0, help="How many of the worst utterances to show."),
    processes: int = typer.Option(1, help="Processes to start on this machine."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Decode a dataset with a run's model and count the errors exactly.

    basic lowers case and removes punctuation and tags; verbatim removes nothing.

    Example: allears evaluate runs/demo data/test --split test
    """
    from allears.cluster.launch import Launch, launch, launched

    if processes != 1 and not launched():
        given = {"--split": split, "--name": name, "--out": out, "--batch": batch}
        options = [str(word) for pair in given.items() if pair[1] is not None for word in pair]
        options += ["--normaliser", normaliser, "--worst", str(worst), *(["--json"] if as_json else [])]
        sys.exit(launch(["evaluate", str(run), str(dataset), *options], Launch(processes)))
    from allears.cli.ranks import as_rank
    from allears.evaluation.report import tell
    from allears.loading.collection import SourceSettings
    from allears.reporting import show_json
    from allears.run.recognise import evaluate as evaluate_run

    with as_rank() as world:
        source = SourceSettings(dataset=str(dataset), split=split)
        found = evaluate_run(run, source, name, world, out, normaliser, batch, worst)
        if world.leads:
            tell(found)
            if as_json:
                show_json({key: value for key, value in found.items() if key not in {"speakers", "worst"}})
