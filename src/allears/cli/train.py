"""``allears train``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from allears.run.settings import RunSettings


def train(
    config: str = typer.Argument(
        help="A YAML file, or the name of a shipped config: demo, tiny, small, digits, mandarin."
    ),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Settings to change, such as dataset=PATH or training.epochs=3."
    ),
    out: Path = typer.Option(None, help="Folder of the run; the same command goes on there. Default: runs/CONFIG."),
    processes: int = typer.Option(1, help="Processes to start on this machine; a launcher's own count goes before."),
    show: bool = typer.Option(False, "--show", help="Print the settings and where each comes from; train nothing."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Train a recogniser: alone, with --processes N, or under torchrun, unchanged.

    Example: allears train tiny dataset=data/libri --out runs/first --processes 2
    """
    from allears.cluster.launch import Launch, launch, launched, warm

    starts = processes != 1 and not launched() and not show
    if starts:
        how = Launch(processes)
        warm()  # what starts ranks imports while the settings are read
    given, values, settings = resolved(config, overrides)
    if show:
        from allears.reporting import show as show_line
        from allears.settings import origins

        for name, value, origin in origins(settings, values, given, config):
            show_line(f"{name:<44} {value!s:<28} {origin}")
        return
    folder = out or run_folder(config)
    if starts:
        from allears.loading.plan import subtrees
        from allears.run.outcome import recall_outcome

        subtrees(settings.plan.micro_batches, processes)  # whether there is one for each is said before they start
        arguments = ["train", config, *given, "--out", str(folder), *(["--json"] if as_json else [])]
        if recall_outcome(settings, folder) is None:  # else one process is enough to tell it
            sys.exit(launch(arguments, how))
    from allears.cli.ranks import as_rank
    from allears.cluster.failure import FAILURES
    from allears.processes import PART
    from allears.run.train import train as train_run
    from allears.stopping import STOPPED, by

    with as_rank(STOPPED) as world:
        outcome = train_run(settings, folder, world)
        if world.leads:
            from allears.reporting import say, show_json

            if not outcome["stopped"] and PART not in os.environ:
                say(f"the run is in {folder}; try it: allears evaluate {folder} DATASET")
            if as_json:
                show_json(outcome)
    if outcome["stopped"] and (not launched() or FAILURES in os.environ):  # another launcher would start it again
        sys.exit(128 + signal.SIGINT if by() == signal.SIGINT and not launched() else STOPPED)


def run_folder(config: str) -> Path:
    """Where a run of ``config`` lies unless told otherwise."""
    return Path("runs") / Path(config).stem


def resolved(config: str, overrides: list[str] | None) -> tuple[list[str], dict[str, Any], RunSettings]:
    """The overrides in full, the values that they and the config give, and the settings that these make."""
    from allears.run.settings import RunSettings
    from allears.settings import build, overridden, read

    given = [f"train.{item}" if item.startswith("dataset=") else item for item in overrides or []]
    values = overridden(read(config), given)
    return given, values, build(RunSettings, values, config)
