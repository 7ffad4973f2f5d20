"""Our own ``manifest.jsonl``, of a prepared dataset or written by hand: ``id audio text`` and what else there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from allears.corpora.layout import BAD_LINE, Found, Layout, base_folder, base_note, files_ending, head, located
from allears.manifest.manifest import NAME, record, utterance

if TYPE_CHECKING:
    from allears.types import Utterance


def sources(path: Path, named: bool) -> list[Path]:
    """The manifests at ``path``; with ``manifest.jsonl`` no other file is looked at."""
    found = files_ending(path, (".jsonl", ".json"), NAME)
    return [one for one in found if named or _recognised(one)]


def _recognised(path: Path) -> bool:
    try:
        return {"id", "audio", "text"} <= set(record("".join(head(path)[:1])))
    except ValueError:
        return False


def utterances(source: Path) -> Found:
    """The utterances of one manifest; relative audio paths start from its folder."""
    found = Found()
    rows: list[Utterance] = []
    for number, line in found.lines(source):
        try:
            rows.append(utterance(record(line)))
        except ValueError as error:
            found.reject(f"{source.name}:{number}", BAD_LINE, f"{source}, line {number}: {error}.")
    base = base_folder([row.audio for row in rows], [source.parent, Path.cwd()])
    found.utterances += [replace(row, audio=located(row.audio, base)) for row in rows]
    found.notes += base_note(base, source.parent)
    return found


LAYOUT = Layout("manifest", f"{NAME}, or a .jsonl file of JSON lines with id, audio and text", sources, utterances)
