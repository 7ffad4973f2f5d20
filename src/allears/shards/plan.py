"""Which utterance goes into which shard: a pure function of the corpus, so that every run writes the same files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from allears import files
from allears.manifest import manifest
from allears.reporting import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from allears.types import Utterance

FORMAT: Final = 2
"""Raised when the bytes of a shard change for the same corpus and settings."""

_BYTES_PER_SECOND: Final = {".flac": 18_000, ".mp3": 8_000, ".ogg": 6_000, ".opus": 4_000, ".wav": 32_000}
"""What a second of speech usually takes; the sizes of shards need no better."""
_LEAST_SECONDS: Final = 0.1
_SHARDS: Final = 32
_SHARD_SECONDS: Final = (120.0, 3600.0)
_SHARD_UTTERANCES: Final = 20_000
_STAT_THREADS: Final = 16
_STAT_BLOCK: Final = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be written.

    Attributes:
        digest: of everything that decides the bytes of the dataset.
        bounds: int64 [shards + 1]; shard ``k`` takes utterances ``bounds[k]`` to ``bounds[k + 1]``.
    """

    digest: str
    bounds: NDArray[np.int64]


def plan(utterances: Sequence[Utterance], context: Sequence[str]) -> Plan:
    """Plan the shards of ``utterances``; ``context`` are the settings that decide the bytes, for the digest.

    The digest has each audio file's size, so that a corpus whose files were mended is another corpus.
    """
    sizes = _file_sizes(utterances)
    seconds = np.fromiter((_estimate(one, sizes[one.audio]) for one in utterances), np.float64, len(utterances))
    lines = (manifest.line(one) + str(sizes[one.audio]).encode() for one in utterances)
    return Plan(files.digest(str(FORMAT), *context, *lines), bounds(seconds))


def bounds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Cut utterances of estimated ``seconds`` [n] into shards of at most an hour, at least some dozens if that is long.

    Returns:
        int64 [shards + 1], the first 0 and the last n.
    """
    kept = np.maximum(seconds, _LEAST_SECONDS)
    target = float(np.clip(kept.sum() / _SHARDS, *_SHARD_SECONDS))
    by_time = ((np.cumsum(kept) - kept) // target).astype(np.int64)
    by_number = np.arange(len(kept)) // _SHARD_UTTERANCES
    shard = by_time + by_number
    starts = np.flatnonzero(np.diff(shard, prepend=-1))
    return np.append(starts, len(kept)).astype(np.int64)


def _file_sizes(utterances: Sequence[Utterance]) -> dict[str, int]:
    """Bytes of each audio file, -1 for what cannot be looked at; many at once, because a network disk is slow."""
    paths = list(dict.fromkeys(one.audio for one in utterances))
    blocks = [paths[start : start + _STAT_BLOCK] for start in range(0, len(paths), _STAT_BLOCK)]
    sizes: dict[str, int] = {}
    with ThreadPoolExecutor(_STAT_THREADS) as pool, Progress("looking at files", len(paths), "files") as progress:
        for block, found in zip(blocks, pool.map(_sizes, blocks), strict=True):
            sizes.update(zip(block, found, strict=True))
            progress.advance(len(block))
    return sizes


def _sizes(paths: list[str]) -> list[int]:
    found = []
    for path in paths:
        try:
            found.append(os.stat(path).st_size)  # noqa: PTH116 (by the million)
        except (OSError, ValueError):
            found.append(-1)
    return found


def _estimate(one: Utterance, size: int) -> float:
    """Seconds of audio, from the corpus where it says them, else from the file's size."""
    if one.duration is not None:
        return one.duration
    try:
        return float(one.extra["duration_s"])
    except (KeyError, TypeError, ValueError):
        suffix = os.path.splitext(one.audio)[1].lower()  # noqa: PTH122 (by the million)
        return max(size, 0) / _BYTES_PER_SECOND.get(suffix, 32_000)
