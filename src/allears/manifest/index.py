"""The index of a dataset: memory-mapped columns, so that opening a million utterances takes milliseconds.

``index/`` holds one ``.npy`` file for each column of numbers, a blob of UTF-8 with int64 offsets for ids and for texts,
``names.json`` (speakers, languages, splits: the columns hold their codes) and ``index.json`` (version, encoding,
shards, digest). Anyone can open the columns with ``numpy.load``. It is written last: a dataset with it is complete.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
from array import array
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from allears import files, seeding
from allears.errors import DataError, DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Encoding = Literal["pcm16", "flac"]

FOLDER: Final = "index"
WORK: Final = ".work"
"""Where ``prepare`` keeps what it needs to go on after it was stopped; absent from a complete dataset."""
VALIDATION: Final = "validation"
"""Where ``validate`` leaves what it found, where no other folder is named."""
VERSION: Final = 1

_COLUMNS: Final = {
    "samples": "<i8",
    "keys": "<u8",
    "shard": "<i4",
    "offset": "<i8",
    "size": "<i8",
    "speaker_codes": "<i4",
    "language_codes": "<i4",
    "split_codes": "<i4",
}
_BLOBS: Final = ("ids", "texts")

Rows: TypeAlias = "range | NDArray[np.int32]"
"""Rows of an index in ascending order: a stretch of them, for which columns stay where they lie, or single ones [n]."""


def chosen(rows: Rows, where: NDArray[np.bool_]) -> Rows:
    """Those of ``rows`` [n] at which ``where`` [n] is true."""
    first = int(where.argmax()) if len(where) else 0
    last = first + int(np.count_nonzero(where))
    if where[first:last].all():
        return rows[first:last]
    found = np.flatnonzero(where).astype(np.int32)
    if isinstance(rows, range):
        found += np.int32(rows.start)
        return found
    return rows[found]


def taken(column: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """The values [n] of ``column`` at ``rows``; of a stretch they are not copied."""
    return column[rows.start : rows.stop] if isinstance(rows, range) else column[rows]


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file of audio: its path relative to the dataset's folder, its size in bytes, the SHA-256 of its contents."""

    name: str
    size: int
    sha256: str


class Row(NamedTuple):
    """One utterance as the index keeps it: ``samples`` at 16 kHz, ``offset`` and ``size`` in bytes of its file."""

    id: str
    text: str
    speaker: str
    language: str
    split: str
    samples: int
    shard: int
    offset: int
    size: int


def forget(column: NDArray[Any]) -> None:
    """Give back the memory that a memory-mapped column has come to take; what is needed again is mapped again."""
    held: object = column
    while isinstance(held, np.ndarray):
        held = held.base
    if isinstance(held, mmap.mmap):
        held.madvise(mmap.MADV_DONTNEED)


class Index:
    """The memory-mapped columns of a prepared dataset; ``i`` is always an utterance's place in the manifest.

    Attributes:
        folder: the dataset.
        encoding: how the audio lies in the shards.
        digest: SHA-256 hex over the whole contents, those of the shards included.
        shards: the files of audio; ``shard`` counts through them.
        samples: int64 [utterances], length at 16 kHz.
        keys: uint64 [utterances], `seeding.key` of the id.
        shard: int32 [utterances].
        offset: int64 [utterances], position of the audio in the shard file, in bytes.
        size: int64 [utterances], in bytes.
        speaker_codes: int32 [utterances], places in ``speakers``; likewise languages and splits.
    """

    def __init__(
        self, folder: Path, about: dict[str, Any], columns: dict[str, NDArray[Any]], blobs: dict[str, _Blob]
    ) -> None:
        self.folder = folder
        self.encoding: Encoding = about["encoding"]
        self.digest: str = about["digest"]
        self.shards = [ShardFile(**shard) for shard in about["shards"]]
        self._columns = columns
        self.samples: NDArray[np.int64] = columns["samples"]
        self.keys: NDArray[np.uint64] = columns["keys"]
        self.shard: NDArray[np.int32] = columns["shard"]
        self.offset: NDArray[np.int64] = columns["offset"]
        self.size: NDArray[np.int64] = columns["size"]
        self.speaker_codes: NDArray[np.int32] = columns["speaker_codes"]
        self.language_codes: NDArray[np.int32] = columns["language_codes"]
        self.split_codes: NDArray[np.int32] = columns["split_codes"]
        self._ids = blobs["ids"]
        self._texts = blobs["texts"]

    @classmethod
    def open(cls, folder: Path) -> Index:
        """Open the dataset in ``folder`` without reading its columns.

        Raises:
            DatasetError: the folder is missing, not prepared, incomplete, damaged or of another version.
        """
        place = _place(folder)
        try:
            about = files.read_json(place / "index.json")
            if about["version"] != VERSION:
                raise DatasetError(
                    f"{place} has version {about['version']} and this allears reads version {VERSION}; "
                    "prepare the dataset again with --overwrite."
                )
            count = about["utterances"]
            columns = {name: _column(place / f"{name}.npy", kind, count) for name, kind in _COLUMNS.items()}
            blobs = {name: _Blob(place, name, count) for name in _BLOBS}
            return cls(folder, about, columns, blobs)
        except DatasetError:
            raise
        except (DataError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(
                f"{place} is damaged ({error or type(error).__name__}); prepare the dataset again with --overwrite."
            ) from error

    def __len__(self) -> int:
        return len(self.samples)

    def __reduce__(self) -> tuple[Any, ...]:
        return Index.open, (self.folder,)

    def forget(self) -> None:
        """Give back the memory that columns and strings have come to take: in time it would be all of them."""
        for column in self._columns.values():
            forget(column)
        self._ids.forget()
        self._texts.forget()

    def id(self, i: int) -> str:
        """The utterance's id."""
        return self._ids[i]

    def text(self, i: int) -> str:
        """The transcript."""
        return self._texts[i]

    def speaker(self, i: int) -> str:
        """The speaker; empty when unknown."""
        return self.speakers[int(self.speaker_codes[i])]

    def language(self, i: int) -> str:
        """The language; empty when unknown."""
        return self.languages[int(self.language_codes[i])]

    def split(self, i: int) -> str:
        """The split; empty when the corpus has none."""
        return self.splits[int(self.split_codes[i])]

    @property
    def speakers(self) -> list[str]:
        """All speakers, in order of appearance."""
        return self._names["speakers"]

    @property
    def languages(self) -> list[str]:
        """All languages, in order of appearance."""
        return self._names["languages"]

    @property
    def splits(self) -> list[str]:
        """All splits, in order of appearance."""
        return self._names["splits"]

    @functools.cached_property
    def _names(self) -> dict[str, list[str]]:
        path = self.folder / FOLDER / "names.json"
        try:
            names: dict[str, list[str]] = files.read_json(path)
        except DataError as error:
            raise DatasetError(f"{error} Prepare the dataset again with --overwrite.") from error
        return names

    def rows(self, split: str | None) -> Rows:
        """The utterances of a split in manifest order; all of them for None.

        Raises:
            DatasetError: there is no such split; the message names those there are.
        """
        if split is None:
            return range(len(self))
        if split not in self.splits:
            known = ", ".join(name or "(without a name)" for name in self.splits)
            raise DatasetError(f"{self.folder} has no split {split!r}; it has {known}.")
        return chosen(range(len(self)), self.split_codes == self.splits.index(split))


class _Blob:
    """Strings one behind the other in a memory-mapped file, with int64 offsets [strings + 1]."""

    def __init__(self, place: Path, name: str, count: int) -> None:
        self._offsets = _column(place / f"{name}.offsets.npy", "<i8", count + 1)
        path = place / f"{name}.utf8"
        length = int(self._offsets[-1])
        if path.stat().st_size != length:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes in place of {length}")
        self._bytes: mmap.mmap | bytes = b""
        if length:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getitem__(self, i: int) -> str:
        if not 0 <= i < len(self._offsets) - 1:
            raise IndexError(f"utterance {i} of {len(self._offsets) - 1}")
        return self._bytes[self._offsets[i] : self._offsets[i + 1]].decode()

    def forget(self) -> None:
        forget(self._offsets)
        if isinstance(self._bytes, mmap.mmap):
            self._bytes.madvise(mmap.MADV_DONTNEED)


def _place(folder: Path) -> Path:
    """The index folder of a complete dataset, or the sentence that says what is there instead."""
    place = folder / FOLDER
    if place.is_dir():
        return place
    if not folder.exists():
        raise DatasetError(f"The dataset {folder} does not exist; make it with `allears prepare CORPUS {folder}`.")
    if not folder.is_dir():
        raise DatasetError(f"The dataset {folder} is a file where a prepared folder is needed; see `allears prepare`.")
    if (folder / WORK).exists():
        raise DatasetError(
            f"The dataset {folder} is incomplete: its preparation was stopped; run the same `allears prepare` again, "
            "it goes on where it was."
        )
    raise DatasetError(f"{folder} is not a prepared dataset: it has no {FOLDER}/; use `allears prepare {folder} OUT`.")


def _column(path: Path, kind: str, count: int) -> NDArray[Any]:
    """Memory-map one column [count] of dtype ``kind``; a ValueError says what is wrong with it."""
    column = np.load(path, mmap_mode="r", allow_pickle=False)
    if column.dtype != np.dtype(kind) or column.shape != (count,):
        raise ValueError(f"{path.name} holds {column.shape} {column.dtype} in place of ({count},) {np.dtype(kind)}")
    return column.view(np.ndarray)  # type: ignore[no-any-return]  # plain arrays index faster than memmap's subclass


class _Codes:
    """Names numbered in order of appearance, and the numbers as a column."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.column = array("i")

    def append(self, name: str) -> None:
        self.column.append(self.names.setdefault(name, len(self.names)))


def write(folder: Path, rows: Iterable[Row], encoding: Encoding, shards: Sequence[ShardFile]) -> str:
    """Write the index of the dataset in ``folder``, complete or absent, and give its digest.

    Args:
        folder: the dataset; ``index/`` in it is replaced.
        rows: the utterances in manifest order; read once.
        encoding: how the audio lies in the shards.
        shards: the files that ``Row.shard`` counts through.
    """
    with files.written_folder(folder / FOLDER) as place:
        count = _write_columns(place, rows)
        about = {
            "version": VERSION,
            "utterances": count,
            "encoding": encoding,
            "digest": "",
            "shards": [asdict(shard) for shard in shards],
        }
        about["digest"] = _digest(place, about)
        files.write_json(place / "index.json", about)
    return str(about["digest"])


def _write_columns(place: Path, rows: Iterable[Row]) -> int:
    """Write all columns and blobs in one pass over ``rows``; gives how many there were."""
    numbers = {name: array("Q" if name == "keys" else "q") for name in ("samples", "keys", "shard", "offset", "size")}
    codes = {name: _Codes() for name in ("speaker", "language", "split")}
    offsets = {name: array("q", [0]) for name in _BLOBS}
    id_end = text_end = 0
    with (place / "ids.utf8").open("wb") as ids, (place / "texts.utf8").open("wb") as texts:
        for row in rows:
            id_end += ids.write(row.id.encode())
            text_end += texts.write(row.text.encode())
            offsets["ids"].append(id_end)
            offsets["texts"].append(text_end)
            numbers["keys"].append(seeding.key(row.id))
            numbers["samples"].append(row.samples)
            numbers["shard"].append(row.shard)
            numbers["offset"].append(row.offset)
            numbers["size"].append(row.size)
            codes["speaker"].append(row.speaker)
            codes["language"].append(row.language)
            codes["split"].append(row.split)
    for name, kind in _COLUMNS.items():
        column = codes[name.removesuffix("_codes")].column if name.endswith("_codes") else numbers[name]
        np.save(place / f"{name}.npy", np.asarray(column).astype(kind))
    for name in _BLOBS:
        np.save(place / f"{name}.offsets.npy", np.asarray(offsets[name]).astype("<i8"))
    files.write_json(place / "names.json", {f"{name}s": list(code.names) for name, code in codes.items()})
    return len(numbers["samples"])


def _digest(place: Path, about: dict[str, Any]) -> str:
    """SHA-256 over every file of the index in order of name, and over what index.json says of the shards."""
    parts = [repr(sorted(about.items()))]
    for path in sorted(place.iterdir()):
        with path.open("rb") as file:
            parts.append(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return files.digest(*parts)
