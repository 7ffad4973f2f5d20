"""``allears synthesize``."""

from __future__ import annotations

from pathlib import Path

import typer


def synthesize(
    out: Path = typer.Argument(help="Folder to write the corpus to."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Speak a small corpus with espeak-ng voices.

    Example: allears synthesize corpus --hours 2
    """
