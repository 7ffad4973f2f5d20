"""``allears average``."""

from __future__ import annotations

from pathlib import Path

import typer


def average(
    run: Path = typer.Argument(help="Folder of a run."),
    most: int = typer.Option(
        3, "--checkpoints", help="How many are averaged: the best, or the newest if none is scored."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Average the best checkpoints of a run; evaluate and transcribe then use the average.

    A training does this by itself at its end, and keeps the average only if it is better on the validation set; this
    command keeps it whatever it is. Remove the folder RUN/average to go back.

    Example: allears average runs/first --checkpoints 5
    """
    from allears.errors import SettingsError
    from allears.files import write_json
    from allears.reporting import say, show, show_json
    from allears.training.average import average_folder, write_average
    from allears.training.checkpoint import best, checkpoints, newest

    if most < 1:
        raise SettingsError(f"--checkpoints must be at least 1, not {most}.")
    newest(run)  # there is one
    of = best(run, most) or checkpoints(run)[-most:]
    if len(of) < 2:
        say("note: just one checkpoint is there, or was scored; training.validate_every scores more of them.")
    place = average_folder(run)
    write_average(place, of)
    # A training's end may have judged another one; this one has no score.
    write_json(run / "average.json", {"of": [path.name for path in of], "score": None, "best": None, "kept": True})
    say(f"note: it has not been scored, and stands for the run from now on; remove {place} to go back.")
    show(f"{place}: the average of {', '.join(sorted(path.name for path in of))}")
    if as_json:
        show_json({"average": str(place), "of": sorted(path.name for path in of)})
