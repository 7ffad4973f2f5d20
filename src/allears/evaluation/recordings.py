"""A model and audio files of any length → what is said in them, in bounded memory.

Files are read by blocks, cut at silence, and batched one after the other; rank r decodes every size-th batch.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from allears import watching
from allears.audio.files import AudioFile
from allears.errors import AudioError, DataError
from allears.evaluation.segments import pieces
from allears.evaluation.transcribe import Stretch, Transcript, decoding, stretches_of
from allears.reporting import Progress, duration, say
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from allears.evaluation.segments import Piece
    from allears.evaluation.transcribe import BatchLimits, Recogniser
    from allears.text.tokenizer import Tokenizer
    from allears.world import World

Place = tuple[int, int]
"""A file's number and the first sample of a piece of it."""


def transcribed_files(
    model: Recogniser, files: Sequence[Path], tokenizer: Tokenizer, world: World, limits: BatchLimits
) -> list[Transcript]:
    """What is said in each file, in their order, the same on every rank.

    A file that cannot be read has a problem, and the text of what could be read before it.

    Raises:
        DataError: the ranks read different audio from the same files.
    """
    problems: dict[int, str] = {}
    mine: dict[Place, Stretch] = {}
    read: list[Place] = []
    with decoding(model, world) as hear, contextlib.ExitStack() as stack:
        progress = Progress("transcribe", len(files), "files") if world.leads else None
        if progress is not None:
            stack.enter_context(progress)
        seconds = 0.0
        for number, batch in enumerate(_batches(files, limits, problems)):
            watching.go_on()
            places = [(file, piece.start) for file, piece in batch]
            read += places
            if number % world.size == world.rank:
                parts = [piece for _, piece in batch]
                mine |= dict(zip(places, stretches_of(parts, hear, tokenizer, limits), strict=True))
            if progress is not None:
                seconds += sum(len(piece.samples) for _, piece in batch) / SAMPLE_RATE
                progress.advance(batch[-1][0] - progress.done, f"{duration(seconds)} of audio")
        if progress is not None:
            progress.advance(len(files) - progress.done)
    gathered = world.gather((mine, read, problems))
    if any(part[1:] != gathered[0][1:] for part in gathered):
        raise DataError("the ranks read different audio from the same files; wait until nobody writes to them.")
    if world.leads:
        for problem in problems.values():
            say(f"note: {problem}")
    found: list[list[Stretch]] = [[] for _ in files]
    for (file, _), stretch in sorted(pair for part, _, _ in gathered for pair in part.items()):
        found[file].append(stretch)
    return [Transcript(tuple(stretches), problems.get(file, "")) for file, stretches in enumerate(found)]


def _batches(files: Sequence[Path], limits: BatchLimits, problems: dict[int, str]) -> Iterator[list[tuple[int, Piece]]]:
    """Pieces in a row in batches within ``limits``, each with its file's number; a bad file goes to ``problems``."""
    batch: list[tuple[int, Piece]] = []
    longest = 0
    for file, piece in _pieces(files, problems):
        longest = max(longest, len(piece.samples))
        if batch and not limits.hold(len(batch) + 1, longest):
            yield batch
            batch, longest = [], len(piece.samples)
        batch.append((file, piece))
    if batch:
        yield batch


def _pieces(files: Sequence[Path], problems: dict[int, str]) -> Iterator[tuple[int, Piece]]:
    for number, path in enumerate(files):
        try:
            with AudioFile(str(path)) as file:
                for piece in pieces(_until_damage(file, number, problems)):
                    yield number, piece
        except AudioError as error:
            problems[number] = str(error)


def _until_damage(file: AudioFile, number: int, problems: dict[int, str]) -> Iterator[NDArray[np.int16]]:
    """The blocks of a file; at what is wrong with it they end, so that what is held back is still heard."""
    try:
        yield from file.blocks()
    except AudioError as error:
        problems[number] = str(error)
