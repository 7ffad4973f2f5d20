"""``allears launch``."""

from __future__ import annotations

import sys

import typer


def launch(
    command: list[str] = typer.Argument(metavar="-- train CONFIG [KEY=VALUE]...", help="What every rank runs."),
    processes: int = typer.Option(None, help="Ranks on this machine. Default: one a GPU, or one without GPUs."),
    restarts: int = typer.Option(3, help="How often to start again without getting any further; full after progress."),
    machines: str = typer.Option("1", metavar="N|FEWEST:MOST", help="How many machines take part."),
    meet: str = typer.Option(None, metavar="HOST:PORT", help="Where machines meet: one of them, the same on all."),
    stall_seconds: float = typer.Option(300.0, help="End and start again when nothing has moved for so long."),
) -> None:
    """Train on many processes, and start again from the newest checkpoint when one of them dies.

    SIGTERM, SIGUSR1 (as schedulers send them) and Ctrl-C: all ranks save after their step; exit code 75 says that the
    same command goes on there.

    Example: allears launch --processes 8 -- train small dataset=data/libri --out runs/libri
    """
    from allears.cluster.launch import Launch, bounds, processes_here
    from allears.cluster.launch import launch as launch_ranks
    from allears.errors import SettingsError

    if command[0] != "train":
        raise SettingsError(
            f"launch runs train, not {command[0]}; such as: allears launch --processes 2 -- train tiny …"
        )
    if "--processes" in " ".join(command):
        raise SettingsError("--processes belongs before --, to launch.")
    count = processes_here() if processes is None else processes
    sys.exit(launch_ranks(command, Launch(count, restarts, bounds(machines), meet, stall_seconds)))
