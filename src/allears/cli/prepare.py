"""``allears prepare``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from allears.shards.report import Summary


class Encoding(StrEnum):
    """How audio lies in the shards."""

    pcm16 = "pcm16"
    flac = "flac"


def prepare(
    corpus: Path = typer.Argument(help="Folder or file of a corpus; with --texts, the dataset."),
    dataset: Path | None = typer.Argument(None, help="Folder to write the dataset to."),
    layout: str | None = typer.Option(
        None, help="manifest, metadata, kaldi, nemo or pairs, where the corpus could be read in several ways."
    ),
    encoding: Encoding = typer.Option(
        Encoding.pcm16, help="How audio lies in the shards: int16 samples, or FLAC (half the size, slower to read)."
    ),
    processes: int | None = typer.Option(None, min=1, help="Worker processes; one on each processor by default."),
    language: str = typer.Option("", help="Language tag, such as en or zh, where the corpus says none."),
    split: str = typer.Option("", help="Name of the split, where the corpus has none."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a dataset of another corpus or settings."),
    texts: Path | None = typer.Option(
        None, help="Change only the transcripts of a dataset: a file of id<TAB>text, Kaldi's text, or JSON lines."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Make a dataset of a corpus: find its layout, decode and resample, write shards, manifest, index and report.

    Stopped at any moment, it goes on when started again. What cannot be used is listed in rejected.jsonl.

    Example: allears prepare corpus dataset --language en
    """
    from allears import reporting
    from allears.corpora.find import find
    from allears.errors import SettingsError
    from allears.shards.prepare import Corpus
    from allears.shards.prepare import prepare as make

    if texts is not None:
        _change(texts, dataset or corpus, as_json)
        return
    if dataset is None:
        raise SettingsError("prepare needs the folder of the dataset too, as in allears prepare CORPUS DATASET.")
    found = find(corpus, layout).with_defaults(language, split)
    reporting.say(f"{corpus}: {len(found.utterances):,} utterances, layout {found.layout} ({found.recognised}).")
    for note in found.notes:
        reporting.say(note)
    summary = make(
        Corpus(corpus, found.layout, found.utterances, found.rejections),
        dataset,
        encoding=encoding.value,
        processes=processes,
        overwrite=overwrite,
    )
    _show(summary)
    if as_json:
        reporting.show_json(_json(summary))


def _change(texts: Path, dataset: Path, as_json: bool) -> None:
    """Give a dataset new transcripts."""
    from allears import reporting
    from allears.corpora.texts import texts as read
    from allears.shards.texts import change_texts

    done = change_texts(dataset, read(texts))
    reporting.say(f"{dataset}: {done.changed:,} of {done.utterances:,} transcripts are other ones now.")
    if done.unknown:
        few = ", ".join(map(repr, done.unknown[:3]))
        reporting.say(f"note: {texts}: not in the dataset: {len(done.unknown):,}, such as {few}.")
    if as_json:
        reporting.show_json(
            {
                "utterances": done.utterances,
                "changed": done.changed,
                "unknown": len(done.unknown),
                "dataset": str(dataset),
            }
        )


def _show(summary: Summary) -> None:
    from allears import reporting

    report = summary.report
    if summary.already:
        reporting.say(f"{summary.folder} is complete already, from the same corpus and settings: nothing to do.")
    rows = [*report["splits"].items(), ("all", report)] if len(report["splits"]) > 1 else [("all", report)]
    reporting.table(
        f"Dataset {summary.folder}",
        ["split", "utterances", "hours", "speakers"],
        [
            [name or "-", f"{part['utterances']:,}", f"{part['hours']:,.2f}", f"{part['speakers']:,}"]
            for name, part in rows
        ],
    )
    if report["rejected"]:
        reporting.show(
            f"Rejected {sum(summary.rejected.values()):,}, all listed in {summary.folder / 'rejected.jsonl'}:"
        )
        for reason, one in report["rejected"].items():
            reporting.show(f"  {one['utterances']:>9,}  {reason}; for example: {one['examples'][0]['detail']}")


def _json(summary: Summary) -> dict[str, object]:
    return {
        "utterances": summary.utterances,
        "hours": summary.hours,
        "rejected": sum(summary.rejected.values()),
        "rejected_by_reason": summary.rejected,
        "splits": {name: part["utterances"] for name, part in summary.report["splits"].items()},
        "encoding": summary.report["encoding"],
        "shards": summary.report["shards"],
        "already": summary.already,
        "dataset": str(summary.folder),
    }
