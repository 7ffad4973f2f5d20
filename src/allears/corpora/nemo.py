"""NeMo-style JSON lines: ``audio_filepath duration text offset``, all other fields kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

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
from allears.manifest.manifest import record, required, seconds, string
from allears.types import Utterance

_TAKEN: Final = frozenset(
    {"audio_filepath", "duration", "text", "offset", "id", "speaker", "language", "lang", "split"}
)


def sources(path: Path, named: bool) -> list[Path]:
    """The files of such lines at ``path``."""
    found = files_ending(path, (".jsonl", ".json"), "")
    return [one for one in found if named or _recognised(one)]


def _recognised(path: Path) -> bool:
    try:
        return "audio_filepath" in record("".join(head(path)[:1]))
    except ValueError:
        return False


def utterances(source: Path) -> Found:
    """The utterances of one file; without a field ``id`` ids come from the paths and offsets."""
    found = Found()
    rows: list[tuple[dict[str, Any], Utterance]] = []
    for number, line in found.lines(source):
        try:
            fields = record(line)
            rows.append((fields, _utterance(fields)))
        except ValueError as error:
            found.reject(f"{source.name}:{number}", BAD_LINE, f"{source}, line {number}: {error}.")
    base = base_folder([one.audio for _, one in rows], [source.parent, Path.cwd()])
    made = ids_from_paths([(one.audio, one.start) for _, one in rows])
    for name, (fields, one) in zip(made, rows, strict=True):
        found.utterances.append(
            Utterance(
                id=one.id or name,
                audio=located(one.audio, base),
                text=one.text,
                start=one.start,
                duration=one.duration,
                speaker=one.speaker,
                language=one.language,
                split=one.split,
                extra={key: value for key, value in fields.items() if key not in _TAKEN},
            )
        )
    found.notes += base_note(base, source.parent)
    return found


def _utterance(fields: dict[str, Any]) -> Utterance:
    """One record, its audio path as it stands; a ValueError names the field that is wrong."""
    return Utterance(
        id=string(fields, "id"),
        audio=required(fields, "audio_filepath"),
        text=string(fields, "text").strip(),
        start=seconds(fields, "offset") or 0.0,
        duration=seconds(fields, "duration"),
        speaker=string(fields, "speaker"),
        language=string(fields, "language") or string(fields, "lang"),
        split=string(fields, "split"),
    )


LAYOUT = Layout("nemo", "a .jsonl or .json file of JSON lines with audio_filepath", sources, utterances)
