"""``path<TAB>text`` lines without a header: everything behind the first tab is the transcript."""

from __future__ import annotations

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
from allears.types import Utterance

AUDIO_SUFFIXES: Final = (
    *(".aif", ".aiff", ".au", ".caf", ".flac", ".m4a", ".mp3", ".mp4"),
    *(".oga", ".ogg", ".opus", ".sph", ".wav", ".webm"),
)


def sources(path: Path, named: bool) -> list[Path]:
    """The files of such lines at ``path``."""
    found = files_ending(path, (".tsv", ".txt", ".lst", ".list"), "pairs.tsv")
    return [one for one in found if named or _recognised(one)]


def _recognised(path: Path) -> bool:
    """Whether the first fields of the first lines are audio files, and no header stands above them."""
    lines = head(path)
    if not lines or {"audio", "text"} <= {name.strip().lower() for name in lines[0].split("\t")}:
        return False
    return any(line.split("\t", 1)[0].lower().endswith(AUDIO_SUFFIXES) for line in lines if "\t" in line)


def utterances(source: Path) -> Found:
    """The utterances of one file; ids come from the paths."""
    found = Found()
    rows: list[tuple[str, str]] = []
    tabs = 0
    for number, line in found.lines(source):
        name, tab, text = line.partition("\t")
        if not tab or not name.strip():
            wrong = "no tab" if name.strip() else "no path"
            found.reject(
                f"{source.name}:{number}",
                BAD_LINE,
                f"{source}, line {number} has {wrong} where path<TAB>text is needed: {line[:60]!r}.",
            )
            continue
        tabs += "\t" in text.strip()
        rows.append((name, text.replace("\t", " ").strip()))
    base = base_folder([name for name, _ in rows], [source.parent, Path.cwd()])
    ids = ids_from_paths([(name, 0.0) for name, _ in rows])
    found.utterances += [
        Utterance(id=one, audio=located(name, base), text=text) for one, (name, text) in zip(ids, rows, strict=True)
    ]
    found.notes += base_note(base, source.parent)
    if tabs:
        found.notes.append(f"{source}: {tabs:,} transcripts hold a tab; it became a space.")
    return found


LAYOUT = Layout("pairs", "a .tsv or .txt file of path<TAB>text lines without a header", sources, utterances)
