"""A file of transcripts alone: which utterance says what.

``id<TAB>text`` lines; Kaldi's ``id text`` lines, where none has a tab; tab-separated columns under a header with ``id``
and ``text``; or JSON lines with both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allears.corpora.layout import Found, head
from allears.errors import CorpusError
from allears.manifest.manifest import record, required

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Reader = Callable[[str], tuple[str, str]]


def texts(path: Path) -> dict[str, str]:
    """Id → transcript, for every line of ``path``.

    Raises:
        CorpusError: the file cannot be read, or a line is wrong, has no transcript, or an id that was there before.
    """
    first = head(path)
    header = _columns(first[0]) if first else []
    titled = {"id", "text"} <= set(header)
    read = _reader(path, header if titled else None, first)
    found, said = Found(), dict[str, str]()
    lines = found.lines(path)
    if titled:
        next(lines)
    for number, line in lines:
        try:
            name, text = read(line)
            if not text.strip():
                raise ValueError(f"{name!r} has no transcript; leave the line out to keep the old one")
            if name in said:
                raise ValueError(f"{name!r} was there before; an utterance has one transcript")
        except ValueError as error:
            raise CorpusError(f"{path}, line {number}: {error}.") from error
        said[name] = text.strip()
    if found.rejections:
        raise CorpusError(found.rejections[0].detail)
    return said


def _reader(path: Path, header: list[str] | None, first: list[str]) -> Reader:
    """What makes (id, transcript) of a line."""
    if header is not None:
        if len(set(header)) != len(header):
            raise CorpusError(f"The header of {path} has a column twice: {', '.join(header)}; rename one of them.")
        return lambda line: _of_columns(line, header)
    if first and first[0].lstrip().startswith("{"):
        return _of_json
    return _of_tab if any("\t" in line for line in first) else _of_space


def _columns(line: str) -> list[str]:
    return [name.strip().lower() for name in line.split("\t")]


def _of_columns(line: str, header: list[str]) -> tuple[str, str]:
    values = line.split("\t", len(header) - 1 if header[-1] == "text" else -1)
    if len(values) != len(header):
        raise ValueError(f"{len(values)} fields where the header has {len(header)}")
    fields = dict(zip(header, values, strict=True))
    return required(fields, "id").strip(), fields["text"].replace("\t", " ")


def _of_json(line: str) -> tuple[str, str]:
    fields = record(line)
    return required(fields, "id"), required(fields, "text")


def _of_tab(line: str) -> tuple[str, str]:
    name, tab, text = line.partition("\t")
    if not tab:
        raise ValueError(f"{line[:40]!r} has no tab between id and transcript")
    return name.strip(), text.replace("\t", " ")


def _of_space(line: str) -> tuple[str, str]:
    name, *text = line.split(maxsplit=1)
    return name, "".join(text)
