"""Finding the layout of a corpus by itself, and saying what was taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from allears.corpora import kaldi, manifest, metadata, nemo, pairs
from allears.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from allears.corpora.layout import Layout
    from allears.types import Rejection, Utterance

LAYOUTS: Final[tuple[Layout, ...]] = (manifest.LAYOUT, metadata.LAYOUT, kaldi.LAYOUT, nemo.LAYOUT, pairs.LAYOUT)


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus as it came.

    Attributes:
        layout: its name, as for ``--layout``.
        recognised: what it was recognised by, as a sentence.
        utterances: in the corpus's order.
        rejections: lines that are no utterance.
        notes: what a person should know of how it was read.
    """

    layout: str
    recognised: str
    utterances: Sequence[Utterance]
    rejections: Sequence[Rejection] = ()
    notes: Sequence[str] = ()

    def with_defaults(self, language: str, split: str) -> Corpus:
        """The same corpus, with a language and a split where it says none."""
        if not language and not split:
            return self
        return replace(self, utterances=[_with_defaults(one, language, split) for one in self.utterances])


def find(path: Path, layout: str | None = None) -> Corpus:
    """Read the corpus at ``path``, a folder or a file.

    Args:
        path: where it lies.
        layout: the name of its layout; None to find it.

    Raises:
        CorpusError: there is nothing, no known layout, or more than one.
    """
    if not path.exists():
        raise CorpusError(f"The corpus {path} does not exist.")
    # What is said of a line must not depend on the current folder; symbolic links are kept where that is possible.
    path = path.resolve() if ".." in path.parts else path.absolute()
    chosen, sources = _recognise(path) if layout is None else _named(path, layout)
    return _read(path, chosen, sources)


def _named(path: Path, name: str) -> tuple[Layout, list[Path]]:
    for layout in LAYOUTS:
        if layout.name == name:
            sources = layout.sources(path, True)
            if not sources:
                raise CorpusError(
                    f"{path} has no {layout.looks_for}; without --layout {name} any layout is looked for."
                )
            return layout, sources
    raise CorpusError(f"--layout {name} is not known; there are {', '.join(one.name for one in LAYOUTS)}.")


def _recognise(path: Path) -> tuple[Layout, list[Path]]:
    """The one layout that has sources at ``path``."""
    found = [(layout, sources) for layout in LAYOUTS if (sources := layout.sources(path, False))]
    if not found:
        looked = "; ".join(f"{layout.looks_for} ({layout.name})" for layout in LAYOUTS)
        raise CorpusError(f"{path} has no known layout; looked for {looked}; name one with --layout NAME.")
    if len(found) > 1:
        both = "; ".join(f"{layout.name} ({_names(path, sources)})" for layout, sources in found)
        raise CorpusError(
            f"{path} can be read in several ways: {both}; choose one with --layout NAME, or give its file."
        )
    return found[0]


def _read(path: Path, layout: Layout, sources: list[Path]) -> Corpus:
    """Read all sources; where there are several, each is a split."""
    utterances: list[Utterance] = []
    rejections: list[Rejection] = []
    notes: list[str] = []
    for source in sources:
        found = layout.utterances(source)
        split = _split(path, source) if len(sources) > 1 else ""
        utterances += [_with_defaults(one, "", split) for one in found.utterances]
        rejections += found.rejections
        notes += found.notes
    return Corpus(layout.name, f"{layout.looks_for}: {_names(path, sources)}", utterances, rejections, notes)


def _split(path: Path, source: Path) -> str:
    """The split that a source of several is: its place below the corpus, without the suffix of a file."""
    place = source.relative_to(path)
    return (place.with_suffix("") if source.is_file() else place).as_posix()


def _names(path: Path, sources: Sequence[Path]) -> str:
    names = [str(one.relative_to(path)) if one != path and one.is_relative_to(path) else one.name for one in sources]
    return ", ".join(names if len(names) <= 5 else [*names[:4], f"… {len(names) - 4} more"])


def _with_defaults(one: Utterance, language: str, split: str) -> Utterance:
    if (language and not one.language) or (split and not one.split):
        return replace(one, language=one.language or language, split=one.split or split)
    return one
