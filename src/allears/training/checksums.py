"""The checksums of a checkpoint: written last, so that a folder that has them is complete, and read before it is used.

checksums.json: name of each file → ``bytes`` and ``sha256``.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from allears.errors import CheckpointError, DataError
from allears.files import write_json

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

CHECKSUMS = "checksums.json"
OPTIMIZER = "optimizer.safetensors"
REMEDY = "remove it to fall back to an older one"
_NEEDED = ("model.safetensors", "settings.yaml", "state.json", "tokenizer/tokenizer.json")


def seal(folder: Path) -> None:
    """Write ``checksums.json``: bytes and SHA-256 of every file in ``folder``; a folder without it is not complete."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    sums = {path.relative_to(folder).as_posix(): _checksum(path) for path in files}
    write_json(folder / CHECKSUMS, sums)


def verify(path: Path, optimizer: bool = True) -> None:
    """Compare every file of a checkpoint, but for its ``optimizer`` if that is not needed, with its checksum.

    Raises:
        CheckpointError: one is missing or has changed.
        DataError: one cannot be read, which says nothing of what it holds.
    """
    try:
        sums = json.loads((path / CHECKSUMS).read_bytes()) if (path / CHECKSUMS).exists() else {}
        for name in (*_NEEDED, *([OPTIMIZER] if optimizer else [])):
            if name not in sums:
                raise CheckpointError(f"{path} is damaged: {CHECKSUMS} does not know {name}; {REMEDY}.")
        for name, wanted in sums.items():
            if name == OPTIMIZER and not optimizer:
                continue
            if not (path / name).is_file():
                raise CheckpointError(f"{path} is damaged: {name} is missing; {REMEDY}.")
            if (found := _checksum(path / name)) != wanted:
                what = f"{name} has {found['bytes']:,} bytes with SHA-256 {found['sha256'][:12]}…"
                meant = f"{wanted['bytes']:,} with {wanted['sha256'][:12]}…"
                raise CheckpointError(f"{path} is damaged: {what}, written were {meant}; {REMEDY}.")
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {CHECKSUMS} is not what it was; {REMEDY}.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}; mend that, it may be whole.") from error


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
