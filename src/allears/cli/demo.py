"""``allears demo``."""

from __future__ import annotations

from pathlib import Path

import typer


def demo(
    folder: Path = typer.Argument(Path("allears-demo"), help="Where everything is put; done parts are not done again."),
    processes: int = typer.Option(2, help="Processes that train together."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Make a small multi-voice corpus, prepare it, train on two processes, evaluate. No network, no GPU, minutes.

    Example: allears demo
    """
    from allears.demo import Demo
    from allears.reporting import show_json

    heard = Demo(folder, processes).run()
    if as_json:
        show_json(heard)
