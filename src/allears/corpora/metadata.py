"""``metadata.tsv``: tab-separated columns with a header that has at least ``audio`` and ``text``, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from allears.corpora.layout import (
    BAD_LINE,
    Found,
    Layout,
    base_folder,
    base_note,
    files_ending,
    head,
    ids_from_paths,
    located,
)
from allears.errors import CorpusError
from allears.manifest.manifest import required, seconds
from allears.types import Utterance

_TAKEN: Final = frozenset({"id", "audio", "text", "start", "speaker", "language", "split"})
"""Columns that become fields of an utterance; all others are kept in ``extra``."""


@dataclass(frozen=True, slots=True)
class _Line:
    fields: dict[str, str]
    start: float | None
    duration: float | None


def sources(path: Path, named: bool) -> list[Path]:
    """The files with such a header at ``path``; with ``metadata.tsv`` no other is looked at."""
    found = files_ending(path, (".tsv", ".txt"), "metadata.tsv")
    return [one for one in found if named or {"audio", "text"} <= set(_columns("".join(head(one)[:1])))]


def _columns(line: str) -> list[str]:
    return [name.strip().lower() for name in line.split("\t")]


def utterances(source: Path) -> Found:
    """The utterances of one file.

    Without a column ``start`` an utterance is its whole file, and a length in ``duration_s`` only informs. With it,
    ``duration`` or ``duration_s`` is the length of the segment.

    Raises:
        CorpusError: the header lacks a needed column, or has one twice.
    """
    found = Found()
    lines = found.lines(source)
    columns = _checked_columns(source, next(lines, (0, ""))[1])
    rows: list[_Line] = []
    tabs = 0
    for number, line in lines:
        values = line.split("\t", len(columns) - 1 if columns[-1] == "text" else -1)
        try:
            rows.append(_line(columns, values))
        except ValueError as error:
            found.reject(f"{source.name}:{number}", BAD_LINE, f"{source}, line {number}: {error}.")
        else:
            tabs += "\t" in rows[-1].fields["text"].strip()
    base = base_folder([row.fields["audio"] for row in rows], [source.parent, Path.cwd()])
    made = ids_from_paths([(row.fields["audio"], row.start or 0.0) for row in rows]) if "id" not in columns else None
    for place, row in enumerate(rows):
        name = made[place] if made is not None else row.fields["id"]
        found.utterances.append(_utterance(name, row, base))
    found.notes += base_note(base, source.parent)
    if tabs:
        found.notes.append(f"{source}: {tabs:,} transcripts hold a tab; it became a space.")
    return found


def _checked_columns(source: Path, header: str) -> list[str]:
    columns = _columns(header)
    for name in ("audio", "text"):
        if columns.count(name) != 1:
            raise CorpusError(
                f"The header of {source} must have one column {name!r} and has {', '.join(columns) or 'nothing'}; "
                "name its columns, separated by tabs, in the first line."
            )
    if len(set(columns)) != len(columns):
        raise CorpusError(f"The header of {source} has a column twice: {', '.join(columns)}; rename one of them.")
    return columns


def _line(columns: list[str], values: list[str]) -> _Line:
    """One line's fields by column; a ValueError says what is wrong."""
    if len(values) != len(columns):
        raise ValueError(f"{len(values)} fields where the header has {len(columns)}")
    fields = dict(zip(columns, values, strict=True))
    required(fields, "audio")
    if "id" in fields:
        required(fields, "id")
    start = seconds(fields, "start")
    duration = None
    if start is not None:
        duration = seconds(fields, "duration" if "duration" in fields else "duration_s")
    return _Line(fields, start, duration)


def _utterance(name: str, row: _Line, base: Path) -> Utterance:
    fields = row.fields
    return Utterance(
        id=name,
        audio=located(fields["audio"], base),
        text=fields["text"].replace("\t", " ").strip(),
        start=row.start or 0.0,
        duration=row.duration,
        speaker=fields.get("speaker", "").strip(),
        language=fields.get("language", "").strip(),
        split=fields.get("split", "").strip(),
        extra={key: value for key, value in fields.items() if key not in _TAKEN},
    )


LAYOUT = Layout("metadata", "metadata.tsv, or a .tsv file whose header has audio and text", sources, utterances)
