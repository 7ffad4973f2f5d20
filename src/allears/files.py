"""Files that are complete or absent: written beside their place, flushed to disk, renamed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from allears.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL = ".partial"
_FULL = "free some space there, or choose another place"
_CLOSED = "choose a place that you may write to"
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _CLOSED),
    errno.EIO: "the disk may be failing: look at the system's log, and choose another place",
}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make an error of the system in a block that writes ``path`` (or below it) a `DataError` with its remedy.

    Errors that name other files, and those of connections, stay what they are.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, ConnectionError) or not _concerns(error, path):
            raise
        number = error.errno or 0
        reason = os.strerror(number) if number else str(error).rstrip(".") or type(error).__name__  # HDF5 tells more
        remedy = _REMEDIES.get(number, "choose another place")
        raise DataError(f"{path} cannot be written: {reason}; {remedy}.") from error


def _concerns(error: OSError, path: Path) -> bool:
    """Whether the file that ``error`` names, if it does, is ``path``, beside it for a while, below it or above it."""
    if not isinstance(error.filename, str | bytes):
        return True
    named = Path(os.fsdecode(error.filename))
    beside = path.with_name(path.name + PARTIAL)
    return named.is_relative_to(path) or named.is_relative_to(beside) or path.is_relative_to(named)


def sync_folder(folder: Path) -> None:
    """Flush the entries of ``folder`` to disk, so that a rename in it outlives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file that becomes ``path`` when the block ends well, and vanishes when it does not.

    Raises:
        DataError: it cannot be written.
    """
    beside = path.with_name(path.name + PARTIAL)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):  # what went wrong first is what is told
                beside.unlink()
            raise
        sync_folder(path.parent)


@contextlib.contextmanager
def written_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``path`` (replacing it) when the block ends well, files flushed.

    Raises:
        DataError: it cannot be written.
    """
    beside = path.with_name(path.name + PARTIAL)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        try:
            yield beside
            for file in beside.rglob("*"):
                descriptor = os.open(file, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
            sync_folder(beside)
            removed(path)
            beside.replace(path)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        sync_folder(path.parent)


def removed(folder: Path) -> None:
    """Remove ``folder`` if it is there; whoever dies at it leaves no half folder of that name."""
    aside = folder.with_name(f"{folder.name}.old{PARTIAL}")
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as readable JSON, complete or absent."""
    with written(path) as file:
        file.write((json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode())


def write_yaml(path: Path, value: object) -> None:
    """Write ``value`` as YAML in its own order, complete or absent."""
    import yaml

    with written(path) as file:
        file.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode())


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or damaged one is a `DataError` that names it."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not readable JSON: {error}.") from error


@contextlib.contextmanager
def locked(folder: Path, purpose: str, wait: bool = False) -> Iterator[None]:
    """Hold ``folder`` for one process. A dead holder's lock is free.

    Raises:
        DataError: another process holds it, and this one shall not wait.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                f"{folder} is in use: another process is {purpose} there; wait for it or choose another folder."
            ) from error
        yield
    finally:
        os.close(descriptor)


def digest(*parts: bytes | str | memoryview) -> str:
    """SHA-256 over ``parts``, each preceded by its length in bytes so that boundaries count; 64 hex digits."""
    total = hashlib.sha256()
    for part in parts:
        data = memoryview(part.encode() if isinstance(part, str) else part)
        total.update(data.nbytes.to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()
