"""One shard, written by one worker: decode → check → encode → spool, then the HDF5 file in one pass.

A shard has ``audio`` (int16 samples, or bytes of FLAC streams, one utterance behind the other, contiguous), ``offsets``
(int64 [utterances + 1], in elements of ``audio``) and ``ids``. No times are in it: the same audio is the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO, Final

import h5py
import numpy as np

from allears import files
from allears.audio.decode import UNREADABLE, encode
from allears.audio.files import TOO_SHORT, AudioFile
from allears.errors import AudioError
from allears.manifest.index import Encoding, ShardFile
from allears.shards import pool
from allears.types import SAMPLE_RATE, Utterance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.shards.pool import WorkerError

_MESSAGE_SECONDS: Final = 0.2
_CRASHES: Final = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
)


@dataclass(frozen=True, slots=True)
class Task:
    """One shard to write.

    Attributes:
        out: the dataset's folder.
        name: the shard's path in it, such as ``shards/00000.h5``.
        result: where what was done is written, as JSON of `Result`.
        utterances: what goes in, in order.
        encoding: how it lies.
        minimum_seconds: what is shorter is rejected.
        spared: (audio, why) of files that ended the process of an earlier try; they are rejected unread.
        killed_at: the file at which an earlier process was killed; perhaps by chance.
    """

    out: Path
    name: str
    result: Path
    utterances: list[Utterance]
    encoding: Encoding
    minimum_seconds: float
    spared: tuple[tuple[str, str], ...] = ()
    killed_at: str = ""

    def __str__(self) -> str:
        return f"{self.name} (utterances {self.utterances[0].id} to {self.utterances[-1].id})"


@dataclass(slots=True)
class Result:
    """What became of each utterance of a task; the first number is its place in the task.

    Attributes:
        file: the shard; None when nothing could be used.
        kept: (place, samples at 16 kHz, byte offset in the file, bytes, source rate in Hz).
        rejected: (place, reason, detail).
    """

    file: ShardFile | None = None
    kept: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    rejected: list[tuple[int, str, str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `write_shard` wrote."""
        found = files.read_json(path)
        file = ShardFile(**found["file"]) if found["file"] else None
        return cls(file, [tuple(one) for one in found["kept"]], [tuple(one) for one in found["rejected"]])


def spare(task: Task, death: WorkerError) -> Task | None:
    """The task without the file at which a worker died; None where no file is to blame.

    A decoder that crashes does so again, so its file is left out at once. SIGKILL comes from outside, when memory runs
    out: the file is tried once more. Other signals are somebody's wish to end this.
    """
    if death.item == pool.NOWHERE:
        return None
    audio = task.utterances[death.item].audio
    if death.code == -signal.SIGKILL:
        if task.killed_at != audio:
            return replace(task, killed_at=audio) if not task.killed_at else None
        why = "the process that read it was killed twice (SIGKILL), usually because memory ran out"
    elif -death.code in _CRASHES:
        why = f"its decoder crashed ({signal.Signals(-death.code).name})"
    elif death.code >= 0:
        why = f"its decoder ended the process with code {death.code}"
    else:
        return None
    return replace(task, spared=(*task.spared, (audio, f"{audio} cannot be read: {why}.")), killed_at="")


def write_shard(task: Task) -> Iterator[tuple[int, int]]:
    """Write one shard and its result, both complete or absent; yields (utterances, samples) done so far."""
    result = Result()
    spool = task.result.with_suffix(".spool")
    path = task.out / task.name
    with files.writing(path):
        with spool.open("w+b") as file:
            yield from _spool(task, result, file)
            if result.kept:
                position = _write_hdf5(task, result, file)
                kept = result.kept
                result.kept = [(place, n, position + offset, size, rate) for place, n, offset, size, rate in kept]
                result.file = ShardFile(task.name, path.stat().st_size, _sha256(path))
        spool.unlink()
    files.write_json(task.result, asdict(result))


def _spool(task: Task, result: Result, spool: BinaryIO) -> Iterator[tuple[int, int]]:
    """Decode all utterances into ``spool``; offsets in ``result`` count from its start."""
    offset = utterances = samples = 0
    last = time.monotonic()
    spared = dict(task.spared)
    with contextlib.closing(_Sources()) as sources:
        for place, one in enumerate(task.utterances):
            pool.mark(place)
            try:
                if one.audio in spared:
                    raise AudioError(UNREADABLE, spared[one.audio])
                waveform, rate = _waveform(sources, one, task.minimum_seconds)
            except AudioError as error:
                result.rejected.append((place, error.reason, str(error)))
            else:
                size = spool.write(encode(waveform, task.encoding))
                result.kept.append((place, len(waveform), offset, size, rate))
                offset += size
                samples += len(waveform)
            utterances += 1
            if time.monotonic() - last > _MESSAGE_SECONDS:
                yield utterances, samples
                last = time.monotonic()
    pool.mark(pool.NOWHERE)
    yield utterances, samples


class _Sources:
    """The audio file in use, kept open while utterances in a row come from it."""

    def __init__(self) -> None:
        self._file: AudioFile | None = None

    def file(self, path: str) -> AudioFile:
        if self._file is None or self._file.path != path:
            self.close()
            self._file = AudioFile(path)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _waveform(sources: _Sources, one: Utterance, minimum_seconds: float) -> tuple[NDArray[np.int16], int]:
    """Samples [n] at 16 kHz of one utterance, and the rate of its file in Hz."""
    try:
        file = sources.file(one.audio)
        waveform = file.read(one.start, one.duration)
    except AudioError:
        sources.close()  # after an error a decoder may be anywhere
        raise
    except Exception as error:
        sources.close()
        raise AudioError(UNREADABLE, f"{one.audio} cannot be read: {type(error).__name__}: {error}.") from error
    if len(waveform) < minimum_seconds * SAMPLE_RATE:
        seconds = len(waveform) / SAMPLE_RATE
        raise AudioError(TOO_SHORT, f"{one.audio}: {seconds:.3f} s are less than {minimum_seconds:g} s.")
    return waveform, file.rate


def _write_hdf5(task: Task, result: Result, spool: BinaryIO) -> int:
    """Write the shard from its spool; gives the position of the first byte of audio in the file."""
    path = task.out / task.name
    partial = path.with_name(path.name + files.PARTIAL)
    kind = np.dtype("<i2") if task.encoding == "pcm16" else np.dtype("u1")
    ends = np.cumsum([0] + [size for _, _, _, size, _ in result.kept], dtype=np.int64) // kind.itemsize
    ids = np.array([task.utterances[place].id.encode() for place, *_ in result.kept], dtype="S")
    text = h5py.string_dtype("utf-8", ids.dtype.itemsize)
    with h5py.File(partial, "w", libver=("earliest", "v110"), track_order=False) as file:
        file.attrs["encoding"] = task.encoding
        file.attrs["sample_rate"] = SAMPLE_RATE
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)  # its place is known before anything is in it
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        audio = file.create_dataset("audio", shape=(int(ends[-1]),), dtype=kind, track_times=False, dcpl=properties)
        file.create_dataset("offsets", data=ends, dtype="<i8", track_times=False)
        file.create_dataset("ids", data=ids.astype(text), dtype=text, track_times=False)
        position = int(audio.id.get_offset())
    _copy(spool, partial, position)
    partial.replace(path)
    files.sync_folder(path.parent)
    return position


def _copy(spool: BinaryIO, path: Path, position: int) -> None:
    """Copy all of ``spool`` into ``path`` at ``position``, in the kernel, and flush it to disk."""
    spool.flush()
    size = os.fstat(spool.fileno()).st_size
    with path.open("r+b") as file:
        file.seek(position)
        done = 0
        while done < size:
            done += os.sendfile(file.fileno(), spool.fileno(), done, size - done)
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
