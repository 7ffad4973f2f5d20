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
    processes: int = typer.Option(1, help="Processes to start on this machine."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Decode a dataset with a run's newest model and count the errors exactly.

    Example: allears evaluate runs/demo data/test --split test
    """
    from allears.cluster.local import launch, launched

    label = name or "-".join([dataset.name, *([split] if split else [])])
    if processes != 1 and not launched():
        options = [*(["--split", split] if split else []), "--name", label, *(["--json"] if as_json else [])]
        sys.exit(launch(["evaluate", str(run), str(dataset), *options], processes))
    from allears.cli.ranks import as_rank
    from allears.loading.collection import SourceSettings
    from allears.reporting import show_json, table
    from allears.run import evaluate as evaluate_run

    with as_rank() as world:
        rates = evaluate_run(run, SourceSettings(dataset=str(dataset), split=split), label, world)
        if world.leads:
            table(
                f"{label}: {rates['utterances']:,} utterances ({run / 'evaluation' / label})",
                ["", "rate", "errors", "units", "sub", "ins", "del"],
                [
                    [kind, f"{rates[kind]:.2%}"]
                    + (
                        [f"{rates[key]:,}" for key in ("errors", "units", "substitutions", "insertions", "deletions")]
                        if kind == rates["headline"]
                        else [""] * 5
                    )
                    for kind in ("wer", "cer", "mer")
                ],
            )
            if as_json:
                show_json(rates)
