"""From the utterances of a corpus to a dataset: sift → plan → shards by many processes → manifest, report, index.

Each finished shard has its result in ``.work/``; a preparation that was stopped, even by SIGKILL, goes on from there.
The index is written last: a dataset with an index is complete. No byte depends on time, order or number of processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from allears import __version__, files
from allears.errors import DataError, DatasetError
from allears.manifest import index, manifest
from allears.manifest.index import Encoding, Index, Row, ShardFile
from allears.reporting import Progress, say
from allears.shards import pool
from allears.shards import report as reports
from allears.shards.plan import Plan, plan
from allears.shards.report import Summary, Tally
from allears.shards.write import Result, Task, spare, write_shard
from allears.types import SAMPLE_RATE, Rejection, Utterance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MINIMUM_SECONDS: Final = 0.1
SHARDS: Final = "shards"
_OURS: Final = frozenset(
    {index.FOLDER, index.WORK, index.VALIDATION, SHARDS, manifest.NAME, manifest.REJECTED, reports.NAME}
)


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is prepared: where it lay, in which layout, its utterances, and the lines that were none."""

    path: Path
    layout: str
    utterances: Sequence[Utterance]
    rejections: Sequence[Rejection]


def prepare(
    corpus: Corpus,
    out: Path,
    *,
    encoding: Encoding = "pcm16",
    minimum_seconds: float = MINIMUM_SECONDS,
    processes: int | None = None,
    overwrite: bool = False,
) -> Summary:
    """Make the dataset ``out`` from ``corpus``, or go on with it; does nothing when it is there already.

    Args:
        corpus: what to prepare.
        out: the dataset's folder.
        encoding: how audio lies in the shards: int16 samples, or FLAC (half the size, slower to read).
        minimum_seconds: what is shorter is rejected.
        processes: how many workers; None for one on each processor.
        overwrite: replace a dataset from another corpus or other settings.

    Raises:
        DatasetError: the folder is of something else, a worker died, or no utterance can be used.
    """
    _check_folder(corpus.path, out, overwrite=overwrite)
    with files.locked(out, "preparing a dataset"):
        usable, rejections = _sift(corpus)
        planned = plan(usable, [encoding, repr(minimum_seconds), corpus.layout, *map(repr, rejections)])
        if _complete(out, planned, overwrite=overwrite):
            shutil.rmtree(out / index.WORK, ignore_errors=True)  # killed between the last two lines of _finish
            return Summary(out, files.read_json(out / reports.NAME), already=True)
        _begin(out, planned)
        tasks = _tasks(out, planned, usable, encoding, minimum_seconds)
        _write_shards(tasks, processes or len(os.sched_getaffinity(0)))
        return _finish(out, corpus, planned, tasks, rejections)


def _check_folder(corpus: Path, out: Path, *, overwrite: bool) -> None:
    """Refuse to write into what is no dataset, or over the corpus itself."""
    if out.exists() and not out.is_dir():
        raise DatasetError(f"{out} is a file where the folder of a dataset is needed; choose another name.")
    if corpus.resolve().is_relative_to(out.resolve()):
        raise DatasetError(f"The dataset {out} would be written over the corpus {corpus}; choose another folder.")
    names = {one.name.removesuffix(files.PARTIAL) for one in out.iterdir()} - {".lock"} if out.exists() else set()
    marked = (out / index.FOLDER / "index.json").exists() or (out / index.WORK / "plan.json").exists()
    ours = marked or names <= {manifest.REJECTED, index.WORK}
    if not ours and not (overwrite and names <= _OURS):
        remedy = "replace these remains with --overwrite" if names <= _OURS else "choose another folder"
        raise DatasetError(f"{out} is not empty and not a dataset (it has {', '.join(sorted(names)[:5])}); {remedy}.")


def _sift(corpus: Corpus) -> tuple[list[Utterance], list[Rejection]]:
    """Part what can be judged without audio: no text, and ids that were there before."""
    usable: list[Utterance] = []
    rejections = list(corpus.rejections)
    seen: set[str] = set()
    for one in corpus.utterances:
        if one.id in seen:
            rejections.append(Rejection(one.id, reports.DUPLICATE, f"{one.id} was there before; the first was taken."))
        elif not one.text.strip():
            rejections.append(Rejection(one.id, reports.NO_TEXT, f"{one.id} has no transcript."))
        else:
            usable.append(one)
        seen.add(one.id)
    return usable, rejections


def _complete(out: Path, planned: Plan, *, overwrite: bool) -> bool:
    """Whether ``out`` is this very dataset already; clears what may be overwritten, refuses what may not."""
    complete = (out / index.FOLDER).is_dir()
    started = out / index.WORK / "plan.json"
    try:
        there = files.read_json(out / reports.NAME if complete else started)["source_digest"] if out.exists() else ""
    except (DataError, KeyError, TypeError):
        there = "" if not complete else "unknown"
    if there == planned.digest and not complete:
        return False
    if there == planned.digest and not overwrite:
        _check_whole(out)
        return True
    if there and not overwrite:
        state = "is a dataset" if complete else "holds the unfinished preparation"
        raise DatasetError(
            f"{out} {state} of another corpus, or of this one before it changed, or with other settings; "
            "choose another folder, or replace it with --overwrite."
        )
    _clear(out)
    return False


def _check_whole(out: Path) -> None:
    """A dataset that says it is complete must have its files."""
    for shard in Index.open(out).shards:
        path = out / shard.name
        if not path.is_file() or path.stat().st_size != shard.size:
            raise DatasetError(
                f"{out} is damaged: {shard.name} is missing or has not its {shard.size} bytes; "
                "make it again with --overwrite."
            )
    for name in (manifest.NAME, manifest.REJECTED, reports.NAME):
        if not (out / name).is_file():
            raise DatasetError(f"{out} is damaged: {name} is missing; make it again with --overwrite.")


def _clear(out: Path) -> None:
    """Remove a dataset, its index first: what is left by a kill in between is no dataset any more."""
    for name in (index.FOLDER, index.WORK, index.VALIDATION, SHARDS):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (manifest.NAME, manifest.REJECTED, reports.NAME):
        (out / name).unlink(missing_ok=True)


def _begin(out: Path, planned: Plan) -> None:
    """Mark the folder as ours before anything else is in it, so that a kill at any moment leaves what can go on."""
    files.write_json(out / index.WORK / "plan.json", {"source_digest": planned.digest})
    (out / SHARDS).mkdir(exist_ok=True)


def _tasks(
    out: Path, planned: Plan, utterances: list[Utterance], encoding: Encoding, minimum_seconds: float
) -> list[Task]:
    starts, ends = planned.bounds[:-1].tolist(), planned.bounds[1:].tolist()
    return [
        Task(
            out,
            f"{SHARDS}/{number:05d}.h5",
            out / index.WORK / f"{number:05d}.json",
            utterances[start:end],
            encoding,
            minimum_seconds,
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _write_shards(tasks: list[Task], processes: int) -> None:
    """Write the shards that are not there yet."""
    missing = [task for task in tasks if not _written(task)]
    total = sum(len(task.utterances) for task in tasks)
    done = total - sum(len(task.utterances) for task in missing)
    samples = 0
    if done:
        say(f"{len(tasks) - len(missing)} of {len(tasks)} shards were finished before; going on from there.")
    messages = pool.run(write_shard, missing, processes, spare)
    told = dict.fromkeys(range(len(missing)), (0, 0))
    with Progress("preparing", total, "utterances", done=done) as progress, contextlib.closing(messages):
        for place, (utterances, n) in messages:  # less than before where a task had to begin again
            before, told[place] = told[place], (utterances, n)
            samples += n - before[1]
            progress.advance(utterances - before[0], f"{samples / SAMPLE_RATE / 3600:,.2f} h of audio")


def _written(task: Task) -> bool:
    """Whether an earlier run finished this shard."""
    try:
        result = Result.read(task.result)
        return result.file is None or (task.out / task.name).stat().st_size == result.file.size
    except (DataError, OSError, KeyError, TypeError):
        return False


def _finish(out: Path, corpus: Corpus, planned: Plan, tasks: list[Task], rejections: list[Rejection]) -> Summary:
    """Write what stands beside the shards, the index last."""
    tally = Tally()
    shards: list[ShardFile] = []
    rows: list[Row] = []
    total = sum(len(task.utterances) for task in tasks)
    with files.written(out / manifest.NAME) as lines, Progress("writing the manifest", total, "utterances") as progress:
        for one, row, rate in _kept(tasks, shards, rejections):
            rows.append(row)
            if len(rows) % 1000 == 0:
                progress.advance(1000)
            tally.add(one, row.samples, rate)
            lines.write(manifest.line(one))
    manifest.write_rejected(out / manifest.REJECTED, rejections)
    if not rows:
        _give_up(out, corpus, rejections)
    report = {
        **_about(corpus, planned, tasks[0].encoding, len(shards)),
        **tally.as_json(),
        "rejected": reports.rejected(rejections),
    }
    files.write_json(out / reports.NAME, report)
    index.write(out, rows, tasks[0].encoding, shards)
    shutil.rmtree(out / index.WORK)
    return Summary(out, report, already=False)


def _kept(
    tasks: list[Task], shards: list[ShardFile], rejections: list[Rejection]
) -> Iterator[tuple[Utterance, Row, int]]:
    """All utterances in manifest order with their place and source rate; fills ``shards`` and ``rejections``."""
    for task in tasks:
        result = Result.read(task.result)
        rejections += [Rejection(task.utterances[i].id, reason, detail) for i, reason, detail in result.rejected]
        for i, samples, offset, size, rate in result.kept:
            one = replace(task.utterances[i], duration=round(samples / SAMPLE_RATE, 6))
            names = (one.id, one.text, one.speaker, one.language, one.split)
            yield one, Row(*names, samples, len(shards), offset, size), rate
        if result.file is not None:
            shards.append(result.file)


def _give_up(out: Path, corpus: Corpus, rejections: list[Rejection]) -> None:
    """Leave nothing but the list of what was rejected, and say so."""
    counts = reports.rejected(rejections)
    shutil.rmtree(out / SHARDS)
    (out / manifest.NAME).unlink()
    shutil.rmtree(out / index.WORK)  # last: it marks the folder as ours
    why = ", ".join(f"{reason} {one['utterances']:,}" for reason, one in counts.items()) or "it has none"
    first = next((one["examples"][0]["detail"] for one in counts.values()), "")
    where = out / manifest.REJECTED
    raise DatasetError(f"No utterance of {corpus.path} can be used ({why}); {where} lists all. {first}".rstrip())


def _about(corpus: Corpus, planned: Plan, encoding: Encoding, shards: int) -> dict[str, Any]:
    return {
        "allears": __version__,
        "corpus": str(corpus.path.resolve()),
        "layout": corpus.layout,
        "source_digest": planned.digest,
        "encoding": encoding,
        "shards": shards,
    }
