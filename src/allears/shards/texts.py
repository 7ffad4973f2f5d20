"""New transcripts for a dataset that is there: manifest, report and index are written anew, the audio stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from allears import files
from allears.errors import DatasetError
from allears.manifest import index, manifest
from allears.manifest.index import Index, Row
from allears.reporting import Progress
from allears.shards import report as reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from allears.types import Utterance


@dataclass(frozen=True, slots=True)
class Changed:
    """What new transcripts changed.

    Attributes:
        utterances: of the dataset.
        changed: how many have another transcript than before.
        unknown: ids with a new transcript that the dataset does not have, in order.
    """

    utterances: int
    changed: int
    unknown: list[str]


def change_texts(folder: Path, texts: Mapping[str, str]) -> Changed:
    """Give the dataset in ``folder`` the transcripts ``texts`` (id → text); other utterances keep theirs.

    Stopped at any moment, the same call again comes to the same.

    Raises:
        DatasetError: there is no such dataset, or it has none of these utterances.
    """
    with files.locked(folder, "preparing a dataset"):
        there = Index.open(folder)
        known = {there.id(i) for i in range(len(there))} & texts.keys()
        unknown = [name for name in texts if name not in known]
        if not known:
            such = f", such as {unknown[0]!r}" if unknown else ""
            raise DatasetError(
                f"{folder} has none of the {len(unknown):,} utterances that got a transcript{such}; "
                f"its ids are like {there.id(0)!r}."
            )
        changed = sum(there.text(i) != texts.get(there.id(i), there.text(i)) for i in range(len(there)))
        report = files.read_json(folder / reports.NAME)
        # No preparation of the corpus makes this dataset any more.
        report["source_digest"] = files.digest(report["source_digest"], *(f"{name}\t{texts[name]}" for name in texts))
        with files.written(folder / manifest.NAME) as lines:
            rows = list(_rows(folder, there, texts, lines))
        files.write_json(folder / reports.NAME, report)
        index.write(folder, rows, there.encoding, there.shards)
        return Changed(len(there), changed, unknown)


def _rows(folder: Path, there: Index, texts: Mapping[str, str], lines: BinaryIO) -> Iterator[Row]:
    """The rows of the new index; the manifest's lines are written on the way."""
    with Progress("changing transcripts", len(there), "utterances") as progress:
        for i, one in enumerate(_matching(folder, there)):
            new = replace(one, text=texts.get(one.id, one.text))
            lines.write(manifest.line(new))
            place = (int(there.samples[i]), int(there.shard[i]), int(there.offset[i]), int(there.size[i]))
            yield Row(one.id, new.text, one.speaker, one.language, one.split, *place)
            progress.advance()


def _matching(folder: Path, there: Index) -> Iterator[Utterance]:
    """The manifest's utterances, which must be those of the index."""
    count = 0
    for count, one in enumerate(manifest.read(folder / manifest.NAME), start=1):
        if count > len(there) or one.id != there.id(count - 1):
            break
        yield one
    else:
        if count == len(there):
            return
    raise DatasetError(
        f"{folder} is damaged: line {count} of {manifest.NAME} is not what its index holds there; "
        "prepare the dataset again with --overwrite."
    )
