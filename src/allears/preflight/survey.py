"""Reading a dataset once: each utterance decoded and measured, by several processes, into columns of numbers.

A task is a stretch of utterances of one shard. Its process checks the shard's checksum, then decodes and measures, and
sends blocks of columns. What is kept is about 60 bytes an utterance, so that ten millions fit in a laptop.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from allears.audio.decode import decode
from allears.errors import AudioError, DatasetError
from allears.manifest.index import Index
from allears.preflight import sound, transcript
from allears.reporting import Progress
from allears.shards import pool
from allears.shards.read import ShardReader
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.preflight.settings import PreflightSettings
    from allears.types import Segment

COLUMNS: Final = np.dtype(
    [
        *(("problem", "u1"), ("samples", "<i8"), ("audio", "<u8")),
        *((name, "<f4") for name in sound.Sound._fields),
        *(("letters", "<i4"), ("weight", "<i4"), ("text", "<u8"), ("script", "u1"), ("marks", "u1")),
    ]
)
"""One utterance: `Sound` and `Transcript`, the number of its samples and 64 bits of their MD5."""
SOUND, UNREADABLE, BAD_SHARD = range(3)
"""Values of ``problem``; only sound audio has measures."""
DETAILS: Final = 10_000
"""Sentences about unreadable utterances that are kept: enough to read, and no burden where all are."""
_BLOCK: Final = 64
_FLAC_MD5: Final = slice(26, 42)
"""Where a FLAC stream keeps the MD5 of its samples: behind ``fLaC``, a block's head and 18 bytes of STREAMINFO."""


@dataclass(frozen=True)
class Stretch:
    """Utterances ``first`` to ``last`` (exclusive) of the dataset in ``folder``, all in shard ``shard``."""

    folder: Path
    shard: int
    first: int
    last: int
    settings: PreflightSettings

    def __str__(self) -> str:
        return f"utterances {self.first} to {self.last - 1} of {self.folder} (shard {self.shard})"


@dataclass(frozen=True)
class Block:
    """Measures of utterances from ``first`` on: `COLUMNS` [n], and what is to be said of some, by row."""

    first: int
    columns: NDArray[np.void]
    details: dict[int, str]


@dataclass(frozen=True)
class Letters:
    """How many utterances of a stretch hold each strange letter, and the first rows that do."""

    counts: Counter[str]
    rows: dict[str, list[int]]


@dataclass(frozen=True)
class Survey:
    """All that was read.

    Attributes:
        index: the dataset's.
        columns: `COLUMNS` [utterances].
        details: row → what is wrong with its audio, of the first ones.
        letters: strange letters, and which utterances hold them.
    """

    index: Index
    columns: NDArray[np.void]
    details: dict[int, str] = field(default_factory=dict)
    letters: Letters = field(default_factory=lambda: Letters(Counter(), {}))

    @property
    def readable(self) -> NDArray[np.bool_]:
        """Which utterances [n] have measures."""
        found: NDArray[np.bool_] = self.columns["problem"] == SOUND
        return found

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Duration [n] as decoded, or as the index says where that failed."""
        samples = np.where(self.readable, self.columns["samples"], self.index.samples)
        return np.asarray(samples / SAMPLE_RATE)


def survey(index: Index, settings: PreflightSettings, processes: int) -> Survey:
    """Read all utterances of a dataset.

    Raises:
        DatasetError: a process was killed.
    """
    found = Survey(index, np.zeros(len(index), COLUMNS))
    messages = pool.run(examine, stretches(index, settings), processes, again="run the same command again.")
    heard = 0.0
    with Progress("listening", len(index), "utterances") as progress, contextlib.closing(messages):
        for _, message in messages:
            if isinstance(message, Letters):
                _add(found.letters, message, settings.rare_utterances)
                continue
            found.columns[message.first : message.first + len(message.columns)] = message.columns
            if len(found.details) < DETAILS:
                found.details.update(message.details)
            heard += float(message.columns["samples"].sum()) / SAMPLE_RATE
            progress.advance(len(message.columns), f"{heard / 3600:,.2f} h of audio")
    return found


def stretches(index: Index, settings: PreflightSettings) -> list[Stretch]:
    """The utterances of a dataset, cut where the shard changes."""
    cuts = [0, *(np.flatnonzero(np.diff(index.shard)) + 1).tolist(), len(index)]
    bounds = itertools.pairwise(cuts)
    return [Stretch(index.folder, int(index.shard[a]), a, b, settings) for a, b in bounds if a < b]


def _add(letters: Letters, more: Letters, most: int) -> None:
    letters.counts.update(more.counts)
    for letter, rows in more.rows.items():
        letters.rows[letter] = sorted(letters.rows.get(letter, []) + rows)[:most]


def examine(task: Stretch) -> Iterator[Block | Letters]:
    """Measure a stretch; yields its blocks, then its letters."""
    index = Index.open(task.folder)
    reader = ShardReader(index)
    letters = Letters(Counter(), {})
    starts = range(task.first, task.last, _BLOCK)
    blocks = (
        _block(reader, index, range(first, min(first + _BLOCK, task.last)), task.settings, letters) for first in starts
    )
    altered = altered_shard(index, task.shard)
    yield from _blamed(list(blocks), altered) if altered else blocks
    yield letters


def _blamed(blocks: list[Block], altered: str) -> list[Block]:
    """The blocks of an altered shard; all are bad, unless the streams themselves tell which of them are."""
    if not any(block.columns["problem"].any() for block in blocks):
        for block in blocks:
            block.columns["problem"] = BAD_SHARD
            block.details[block.first] = altered
    return blocks


def altered_shard(index: Index, shard: int) -> str:
    """What to say of a shard whose bytes are not those that were written; empty for a sound one.

    One that is missing or cut short is told by reading it.
    """
    file = index.shards[shard]
    path = index.folder / file.name
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""
    if size != file.size or found == file.sha256:
        return ""
    return f"{path} has other bytes than when it was written (its SHA-256 is {found[:12]}…, not {file.sha256[:12]}…)."


def _block(reader: ShardReader, index: Index, rows: range, settings: PreflightSettings, letters: Letters) -> Block:
    block = Block(rows.start, np.zeros(len(rows), COLUMNS), {})
    for column, row in zip(block.columns, rows, strict=True):
        text = transcript.measure(index.text(row))
        for name in ("letters", "weight", "script", "marks"):
            column[name] = getattr(text, name)
        column["text"] = text.digest
        for letter in text.strange:
            letters.counts[letter] += 1
            if letters.counts[letter] <= settings.rare_utterances:
                letters.rows.setdefault(letter, []).append(row)
        try:
            _listen(reader.segment(row), column, settings)
        except AudioError as error:
            column["problem"] = UNREADABLE
            block.details[row] = str(error)
        except DatasetError as error:
            column["problem"] = BAD_SHARD
            block.details[row] = str(error)
    return block


def _listen(segment: Segment, column: NDArray[np.void], settings: PreflightSettings) -> None:
    """Decode one utterance and fill its ``column``.

    Raises:
        AudioError: it cannot be decoded, or not to the samples that were encoded.
    """
    waveform = decode(segment)
    if len(waveform) == 0:
        raise AudioError("empty", "It has no samples.")
    digest = hashlib.md5(waveform.astype("<i2", copy=False).data, usedforsecurity=False).digest()
    promised = _promised(segment)
    if promised and promised != digest:
        raise AudioError("altered", "Its FLAC stream decodes to other samples than were encoded: a byte has changed.")
    column["samples"] = len(waveform)
    column["audio"] = int.from_bytes(digest[:8], "little")
    for name, value in sound.measure(waveform, settings)._asdict().items():
        column[name] = value


def _promised(segment: Segment) -> bytes:
    """The MD5 of the samples that a FLAC stream carries; empty where there is none."""
    data = segment.data
    if segment.encoding != "flac" or data[:4] != b"fLaC" or data[4] & 0x7F or not any(data[_FLAC_MD5]):
        return b""
    return data[_FLAC_MD5]
