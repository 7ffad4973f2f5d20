"""``allears transcribe``."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def transcribe(
    run: Path = typer.Argument(help="Folder of a run, or of one of its checkpoints."),
    inputs: list[Path] = typer.Argument(metavar="FILE...|DATASET", help="Audio files, or one prepared dataset."),
    out: Path = typer.Option(None, help="A .jsonl file: a manifest with texts, confidences and times is written."),
    split: str = typer.Option(None, help="A part of the dataset. Default: all of it."),
    processes: int = typer.Option(1, help="Processes to start on this machine."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Write what is said in audio files of any length or in a dataset: a line each, the name, a tab, the text.

    With --out the lines are those of a manifest and go there. Confidence is the mean probability of the tokens of
    the best path; where no token is heard, that of hearing none, which in digital silence is 1. A file that cannot be
    read is named, the others are done, and the exit code is not 0.

    Example: allears transcribe runs/demo hello.wav
    """
    from allears.cluster.launch import Launch, launch, launched

    if processes != 1 and not launched():
        given = {"--split": split, "--out": out}
        options = [str(word) for pair in given.items() if pair[1] is not None for word in pair]
        options += ["--json"] if as_json else []
        sys.exit(launch(["transcribe", *options, "--", str(run), *map(str, inputs)], Launch(processes)))
    from allears.cli.ranks import as_rank
    from allears.errors import DataError
    from allears.evaluation.transcripts import described
    from allears.reporting import counted, say, show, show_json
    from allears.run.recognise import transcribe as transcribe_run

    with as_rank() as world:
        found = transcribe_run(run, inputs, world, split, out)
        problems = sum(bool(one.problem) for _, one in found)
        if world.leads:
            if out is not None:
                say(f"{out} holds {counted(len(found), 'transcript')}")
            else:
                for name, one in found:
                    if not one.problem:  # that is said already, and is no silence
                        show(f"{name}\t{one.text}")
            if as_json:
                about = {name: described(one) for name, one in found}
                show_json(
                    {
                        "utterances": len(found),
                        "problems": problems,
                        "texts": {name: one.text for name, one in found},
                        "confidences": {name: one["confidence"] for name, one in about.items()},
                        "segments": {name: one["segments"] for name, one in about.items()},
                    }
                )
        world.barrier()  # a rank that leaves with an error ends all, and the first one may still be writing
        if problems:
            raise DataError(f"{problems:,} of {len(found):,} could not be transcribed; the notes above say why.")
