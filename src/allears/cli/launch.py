"""``allears launch``."""

from __future__ import annotations

import sys

import typer

from allears.cli.train import resolved, run_folder, train


def launch(
    command: list[str] = typer.Argument(metavar="train CONFIG [KEY=VALUE]...", help="What every rank runs."),
    processes: int = typer.Option(None, help="Ranks on this machine. Default: one a GPU, or one without GPUs."),
    restarts: int = typer.Option(3, help="How often to start again without getting any further; full after progress."),
    machines: str = typer.Option("1", metavar="N|FEWEST:MOST", help="How many machines take part."),
    meet: str = typer.Option(None, metavar="HOST:PORT", help="Where machines meet: one of them, the same on all."),
    stall_seconds: float = typer.Option(300.0, help="End and start again when nothing has moved for so long."),
) -> None:
    """Train on many processes, and start again from the newest checkpoint when one of them dies.

    SIGTERM, SIGUSR1 (as schedulers send them) and Ctrl-C: all ranks save after their step; exit code 75 says that the
    same command goes on there.

    Example: allears launch --processes 8 train small dataset=data/libri --out runs/libri
    """
    from allears.cluster.launch import Launch, bounds, launched, processes_here, shared_by, warm
    from allears.cluster.launch import launch as launch_ranks
    from allears.cluster.logs import launcher_logged
    from allears.errors import SettingsError

    if launched():
        raise SettingsError("launch starts the ranks by itself; under another launcher, such as torchrun, use train.")
    if command[0] != "train":
        raise SettingsError(
            f"launch runs train, not {command[0]}; such as: allears launch --processes 2 -- train tiny dataset=PATH."
        )
    how = Launch(processes_here() if processes is None else processes, restarts, bounds(machines), meet, stall_seconds)
    warm()  # what starts ranks imports while the settings are read
    # What is wrong with the command is said once, before anything is started.
    options = typer.main.get_command(_alone).make_context("allears train", command[1:]).params
    if options["processes"] != 1:
        raise SettingsError("--processes belongs to launch, before train.")
    _, _, settings = resolved(options["config"], options["overrides"])
    how = shared_by(how, settings.plan.micro_batches)
    with launcher_logged(options["out"] or run_folder(options["config"])):
        code = launch_ranks(command, how)
    sys.exit(code)


_alone = typer.Typer(add_completion=False)
_alone.command()(train)
