"""``allears synthesize``."""

from __future__ import annotations

from pathlib import Path

import typer


def synthesize(
    out: Path = typer.Argument(help="Folder to write the corpus to; a half-made one is completed."),
    hours: float = typer.Option(2.0, help="Hours of training speech."),
    test: int = typer.Option(300, help="Number of test utterances, by voices that training does not hear."),
    speakers: int = typer.Option(200, help="Number of training speakers."),
    language: str = typer.Option("en", help="en, zh (Mandarin) or mixed (Mandarin with English words)."),
    noise: float = typer.Option(0.5, help="Share of the utterances that get noise: test at 20 dB, training 10-30 dB."),
    seed: int = typer.Option(0, help="The same seed gives the same bytes."),
    processes: int | None = typer.Option(None, help="Processes that speak at once; default: one for each core."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Speak a small corpus with espeak-ng voices.

    Example: allears synthesize corpus --hours 2
    """
    from dataclasses import asdict
    from typing import Any, cast

    from allears.reporting import show, show_json
    from allears.synthesis.corpus import Settings
    from allears.synthesis.corpus import synthesize as make

    settings = Settings(hours, test, speakers, cast("Any", language), noise, seed=seed)
    summary = make(out, settings, processes)
    show(f"{summary.utterances} utterances, {summary.hours:.2f} hours, {summary.speakers} speakers in {out}")
    if as_json:
        show_json(asdict(summary))
