"""``allears tokenizer``."""

from __future__ import annotations

from pathlib import Path

import typer


def tokenizer(
    dataset: Path = typer.Argument(help="A prepared dataset."),
    out: Path = typer.Argument(help="Folder to write the tokenizer to."),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]…", help="Other settings of a tokenizer, such as text=cased_punctuated."
    ),
    kind: str = typer.Option("bpe", help="characters, words, bpe, or mixed (CJK characters, bpe for the rest)."),
    pieces: int = typer.Option(128, help="Size of the byte-pair vocabulary, blank and unknown included."),
    split: str = typer.Option(None, help="A part of the dataset. Default: all of it."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Make a tokenizer from a dataset's transcripts.

    Example: allears tokenizer data/libri tokenizers/libri-128 --pieces 128
    """
    from allears.loading.collection import SourceSettings
    from allears.reporting import say, show_json
    from allears.run.tokenizer import make_tokenizer
    from allears.settings import overridden

    values = overridden({"kind": kind, "pieces": pieces}, overrides or [])
    made, remark = make_tokenizer(SourceSettings(dataset=str(dataset), split=split), out, values)
    if remark:
        say(f"note: {remark}")
    say(f"a vocabulary of {made.size} in {out}; use it: tokenizer.path={out}")
    if as_json:
        show_json({"vocabulary": made.size, "kind": made.kind, "tokenizer": str(out)})
