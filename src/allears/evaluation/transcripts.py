"""Transcripts as lines of a manifest: the text is what was heard, with ``confidence`` and ``segments`` beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from allears.errors import DatasetError, SettingsError
from allears.evaluation.transcribe import Transcript
from allears.manifest import manifest
from allears.types import Utterance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from allears.loading.collection import Collection


def check_out(out: Path, inputs: Sequence[Path]) -> None:
    """Refuse to write over what is read, into a dataset or a run, and over any file that is not of transcripts.

    Raises:
        SettingsError: ``out`` is no name for a manifest, or such a place.
    """
    if out.suffix != ".jsonl" or out.is_dir():
        raise SettingsError(f"--out must be a file that ends in .jsonl, not {out}; name one such as texts.jsonl.")
    for path in inputs:
        if out.resolve() in {path.resolve(), (path / manifest.NAME).resolve()}:
            raise SettingsError(f"--out {out} belongs to what is transcribed; name another file.")
    for mark, kind in {"index": "a dataset", "checkpoints": "a run"}.items():
        if (out.absolute().parent / mark).is_dir():
            raise SettingsError(f"--out {out} lies in the folder of {kind}; name a file in another folder.")
    if out.exists() and not _is_ours(out):
        raise SettingsError(f"--out {out} is there and does not hold transcripts; name another file, or remove it.")


def _is_ours(path: Path) -> bool:
    """Whether the first line of ``path`` is one that is written here; a file without any has nothing to lose."""
    try:
        with path.open("rb") as file:
            first = file.readline()
        return not first or {*manifest.FIELDS, *described(Transcript(()))} <= manifest.record(first.decode()).keys()
    except (OSError, ValueError):
        return False


def of_files(files: Sequence[Path], found: Sequence[Transcript]) -> Iterator[Utterance]:
    """The files as utterances, each named by its path."""
    for path, one in zip(files, found, strict=True):
        length = one.stretches[-1].end if one.stretches else None
        yield _heard(Utterance(str(path), str(path.absolute()), "", duration=length), one)


def of_dataset(collection: Collection, found: Sequence[Transcript]) -> Iterator[Utterance]:
    """The utterances of a collection of one dataset, as its manifest has them.

    Raises:
        DatasetError: the manifest is not the one that the index was made of.
    """
    index, rows = collection.parts[0]
    wanted = {int(row): utterance for utterance, row in enumerate(rows)}
    for row, line in enumerate(manifest.read(index.folder / manifest.NAME)):
        utterance = wanted.pop(row, None)
        if utterance is None:
            continue
        if line.id != collection.id(utterance):
            raise DatasetError(
                f"{index.folder / manifest.NAME}, line {row + 1}, is {line.id!r} where the index has "
                f"{collection.id(utterance)!r}; prepare the dataset again."
            )
        place = str((index.folder / line.audio).absolute())  # a path from the root stays as it is
        yield _heard(replace(line, audio=place), found[utterance])
    if wanted:
        raise DatasetError(f"{index.folder / manifest.NAME} ends before the index does; prepare the dataset again.")


def described(one: Transcript) -> dict[str, Any]:
    """Confidence, segments (start and end in seconds) and what was wrong, as in a manifest and in JSON."""
    segments = [
        {"start": part.start, "end": part.end, "text": part.text, "confidence": round(part.confidence, 4)}
        for part in one.stretches
    ]
    about: dict[str, Any] = {"confidence": round(one.confidence, 4), "segments": segments}
    return {**about, "problem": one.problem} if one.problem else about


def _heard(utterance: Utterance, one: Transcript) -> Utterance:
    return replace(utterance, text=one.text, extra={**utterance.extra, **described(one)})
