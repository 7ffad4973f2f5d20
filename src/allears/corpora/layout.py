"""What all readers of corpora share: lines with their numbers, paths, ids, and the shape of a layout."""

from __future__ import annotations

import codecs
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from allears.errors import CorpusError
from allears.reporting import Progress
from allears.types import Rejection, Utterance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BAD_LINE: Final = "bad line"
COMMAND: Final = "command not run"
DUPLICATE: Final = "duplicate id"
MISSING: Final = "missing file"

_HEAD_BYTES: Final = 1 << 16
_HEAD_LINES: Final = 20


@dataclass(slots=True)
class Found:
    """What one source (a file, or a data directory) holds; filled line by line.

    Attributes:
        utterances: in the order of the source.
        rejections: lines that are no utterance.
        notes: what a person should know of how it was read.
    """

    utterances: list[Utterance] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def reject(self, name: str, reason: str, detail: str) -> None:
        """Note something that cannot be used."""
        self.rejections.append(Rejection(name, reason, detail))

    def lines(self, path: Path) -> Iterator[tuple[int, str]]:
        r"""Numbered lines without their ends; blank ones are passed over, undecodable ones rejected.

        Only ``\n`` ends a line, with or without ``\r`` before it: ``str.splitlines`` would also cut a transcript at a
        form feed or at U+2028.
        """
        for number, data in enumerate(_raw_lines(path), start=1):
            try:
                text = data.decode()
            except UnicodeDecodeError as error:
                self.reject(f"{path.name}:{number}", BAD_LINE, f"{path}, line {number} is not UTF-8: {error}.")
                continue
            if text.strip():
                yield number, text


@dataclass(frozen=True, slots=True)
class Layout:
    """A way to lay out a corpus.

    Attributes:
        name: for ``--layout``.
        looks_for: what recognises it, as a person would say it.
        sources: the files or folders at a path that have this layout, in a fixed order; the second argument says that
            the person named the layout, so that a given file need not be recognised by its contents.
        utterances: what one source holds.
    """

    name: str
    looks_for: str
    sources: Callable[[Path, bool], list[Path]]
    utterances: Callable[[Path], Found]


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Lines as bytes, without byte order mark and line ends."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file, Progress(f"reading {path.name}", size / 1e6, "MB") as progress:
            taken = 0
            for number, data in enumerate(file):
                taken += len(data)
                if number % 4096 == 4095:
                    progress.advance(taken / 1e6 - progress.done)
                if number == 0 and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise CorpusError(f"{path} is UTF-16 where UTF-8 is needed; convert it with `iconv -t UTF-8`.")
                line = data.removeprefix(codecs.BOM_UTF8) if number == 0 else data
                yield line.removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}.") from error


def head(path: Path) -> list[str]:
    """The first lines that are not blank, for recognising a file; empty for what is no readable file."""
    if not path.is_file():
        return []
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD_BYTES)
    except OSError:
        return []
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", errors="replace").encode()
    lines = data.removeprefix(codecs.BOM_UTF8).decode(errors="replace").split("\n")
    return [line.removesuffix("\r") for line in lines if line.strip()][:_HEAD_LINES]


def files_ending(path: Path, suffixes: Sequence[str], preferred: str) -> list[Path]:
    """The candidates at ``path``: itself if it is a file, ``preferred`` in a folder that has it, else all by suffix."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    if (path / preferred).is_file():
        return [path / preferred]
    return sorted(one for one in path.iterdir() if one.suffix.lower() in suffixes and one.is_file())


def base_folder(names: Sequence[str], candidates: Sequence[Path]) -> Path:
    """The absolute folder that relative paths start from: where most of ``names`` exist, else the first candidate."""
    probed = [name for name in names if not os.path.isabs(name)][:100]  # noqa: PTH117

    def existing(folder: Path) -> int:
        return sum(1 for name in probed if _exists(folder / name))

    return (max(candidates, key=existing) if probed else candidates[0]).absolute()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except ValueError:  # a path with a NUL
        return False


def located(name: str, base: Path) -> str:
    """Path of an audio file under an absolute folder; ``..`` is kept, because a folder may be a symbolic link."""
    return os.path.join(base, name)  # noqa: PTH118 (Path normalises, and is slow by the million)


def base_note(base: Path, expected: Path) -> list[str]:
    """A note when paths do not start where they should."""
    if base == expected.absolute():
        return []
    return [f"Relative audio paths of {expected} were found under {base}."]


def ids_from_paths(places: Sequence[tuple[str, float]]) -> list[str]:
    """Ids for (audio path, start in seconds) pairs that have none: the path without its suffix, told apart if needed.

    Two files that differ by their suffix alone keep it; segments of one file get their start in milliseconds. What is
    the same stretch of the same file gets the same id, and is rejected as a duplicate later.
    """
    plain = [_plain(path) for path, _ in places]
    stems = [os.path.splitext(path)[0] for path in plain]  # noqa: PTH122 (paths by the million)
    files_of_stem = Counter(stem for stem, _ in dict.fromkeys(zip(stems, plain, strict=True)))
    starts_of_path = Counter(path for path, _ in dict.fromkeys(zip(plain, (s for _, s in places), strict=True)))
    ids = []
    for stem, path, (_, start) in zip(stems, plain, places, strict=True):
        name = stem if files_of_stem[stem] == 1 else path
        ids.append(name if starts_of_path[path] == 1 else f"{name}-{round(start * 1000):08d}")
    return ids


def _plain(path: str) -> str:
    """A path as an id: without ``.``, leading slashes and leading ``..``."""
    return "/".join(part for part in path.split("/") if part not in {"", ".", ".."}) or path
