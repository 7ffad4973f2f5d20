"""``allears transcribe``."""

from __future__ import annotations

from pathlib import Path

import typer


def transcribe(
    run: Path = typer.Argument(help="Folder of a run, or of one of its checkpoints."),
    inputs: list[Path] = typer.Argument(metavar="FILE...", help="Audio files, or one prepared dataset."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Write what is said in audio files or in a dataset: a line each, the name, a tab, the text.

    Example: allears transcribe runs/demo hello.wav
    """
    from allears.cli.ranks import as_rank
    from allears.reporting import show, show_json
    from allears.run import transcribe as transcribe_run

    with as_rank() as world:
        texts = transcribe_run(run, inputs, world)
        if world.leads:
            for name, text in texts:
                show(f"{name}\t{text}")
            if as_json:
                show_json({"utterances": len(texts), "texts": dict(texts)})
