"""Kaldi data directories: ``wav.scp`` and ``text``, with ``segments``, ``utt2spk`` and others where there are any.

A folder with several of them (train/, test/) is one corpus whose splits have their names.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from allears.corpora.layout import BAD_LINE, COMMAND, DUPLICATE, MISSING, Found, Layout, base_folder, located
from allears.manifest.manifest import seconds
from allears.types import Utterance

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREADABLE: Final = "unreadable"
_ARCHIVE: Final = re.compile(r"\.ark:\d+(\[.*\])?$")
_DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Where an utterance lies: its recording and its times in seconds."""

    id: str
    recording: str
    start: float = 0.0
    duration: float | None = None


def sources(path: Path, named: bool) -> list[Path]:  # noqa: ARG001 (a wav.scp needs no second look)
    """The data directories at or below ``path``."""
    if path.is_file():
        return [path.parent] if path.name in {"wav.scp", "segments", "text"} and _is_data(path.parent) else []
    if _is_data(path):
        return [path]
    return sorted(folder for folder in _folders(path, _DEPTH) if _is_data(folder))


def _is_data(folder: Path) -> bool:
    return (folder / "wav.scp").is_file()


def _folders(path: Path, depth: int) -> Iterator[Path]:
    if depth == 0 or not path.is_dir():
        return
    with os.scandir(path) as entries:
        found = [Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    for folder in found:
        yield folder
        yield from _folders(folder, depth - 1)


def utterances(source: Path) -> Found:
    """The utterances of one data directory, in the order of ``segments`` or else of ``wav.scp``."""
    found = Found()
    places = _first_of_each(found, source / "wav.scp")
    text_of = _first_of_each(found, source / "text")
    if (source / "segments").is_file():
        stretches = _segments(found, source, places)
    else:
        stretches = [_Stretch(name, name) for name in places]
    base = _base(found, source, [name for name in places.values() if not name.endswith("|")])
    speakers = _mapping(found, source / "utt2spk")
    languages = _mapping(found, source / "utt2lang")
    genders = _mapping(found, source / "spk2gender")
    for one in stretches:
        why = _unusable(one, places[one.recording])
        if why is not None:
            found.reject(one.id, *why)
            continue
        speaker = speakers.get(one.id, "")
        found.utterances.append(
            Utterance(
                id=one.id,
                audio=located(places[one.recording], base),
                text=text_of.get(one.id, ""),
                start=one.start,
                duration=one.duration,
                speaker=speaker,
                language=languages.get(one.id, ""),
                extra={"gender": genders[speaker]} if speaker in genders else {},
            )
        )
    _reject_without_audio(found, source, text_of, {one.id for one in stretches})
    return found


def _table(found: Found, path: Path) -> list[tuple[str, str]]:
    """(key, rest of the line) pairs of a Kaldi table; an absent file is an empty one."""
    if not path.is_file():
        return []
    pairs = []
    for _, line in found.lines(path):
        key, _, rest = line.strip().replace("\t", " ").partition(" ")
        pairs.append((key, rest.strip()))
    return pairs


def _mapping(found: Found, path: Path) -> dict[str, str]:
    return dict(_table(found, path))


def _first_of_each(found: Found, path: Path) -> dict[str, str]:
    """A table whose keys must differ: the first line of each; later ones are rejected."""
    first: dict[str, str] = {}
    for key, rest in _table(found, path):
        if key in first:
            found.reject(key, DUPLICATE, f"{path} has a second line for {key}; the first was taken.")
        else:
            first[key] = rest
    return first


def _segments(found: Found, source: Path, places: dict[str, str]) -> list[_Stretch]:
    """The lines ``utterance recording start end`` of ``segments``; an end of -1 is that of the recording."""
    stretches = []
    path = source / "segments"
    for number, line in found.lines(path):
        fields = line.split()
        try:
            if len(fields) != 4:
                raise ValueError(f"{len(fields)} fields where utterance, recording, start and end are needed")
            times = {"start": fields[2], "end": fields[3]}
            start, end = seconds(times, "start") or 0.0, seconds(times, "end") or 0.0
        except ValueError as error:
            found.reject(fields[0], BAD_LINE, f"{path}, line {number}: {error}.")
            continue
        if fields[1] not in places:
            found.reject(fields[0], MISSING, f"{path}, line {number}: wav.scp has no recording {fields[1]}.")
            continue
        stretches.append(_Stretch(fields[0], fields[1], start, None if end == -1 else round(end - start, 6)))
    return stretches


def _base(found: Found, source: Path, names: list[str]) -> Path:
    """Where relative paths start: Kaldi means the current folder, corpora in the wild mean several others."""
    here = source.absolute()
    base = base_folder(names, [source, here.parent, here.parent.parent, Path.cwd()])
    if any(not os.path.isabs(name) for name in names):  # noqa: PTH117
        found.notes.append(f"Relative paths of {source / 'wav.scp'} start at {base}.")
    return base


def _unusable(one: _Stretch, place: str) -> tuple[str, str] | None:
    """Reason and detail when a line of wav.scp is not a file."""
    if place.endswith("|"):
        return COMMAND, (
            f"The recording {one.recording} is the command {place[:80]!r}, and commands of a corpus are never run; "
            "run it once, and name the file it makes in wav.scp."
        )
    if _ARCHIVE.search(place):
        return UNREADABLE, (
            f"The recording {one.recording} lies in the Kaldi archive {place}; write it as a file with wav-copy, and "
            "name that in wav.scp."
        )
    if not place:
        return BAD_LINE, f"wav.scp names no file for the recording {one.recording}."
    return None


def _reject_without_audio(found: Found, source: Path, texts: dict[str, str], ids: set[str]) -> None:
    told = {one.id for one in found.rejections}
    for name in texts:
        if name not in ids and name not in told:
            found.reject(name, MISSING, f"{source / 'text'} has a transcript for {name}, for which there is no audio.")


LAYOUT = Layout("kaldi", "Kaldi data directories with a wav.scp", sources, utterances)
