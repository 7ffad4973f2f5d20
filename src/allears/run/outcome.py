"""What a complete run has come to, so that the same command, given again, says so at once.

RUN/outcome.json: ``of``, all that it depends on, and ``told``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from allears.errors import CheckpointError, DataError
from allears.files import read_json, write_json
from allears.manifest.index import Index
from allears.training.average import chosen
from allears.training.checkpoint import checkpoints, newest
from allears.training.checksums import verify

if TYPE_CHECKING:
    from allears.run.settings import RunSettings

_SPENT = ("seconds", "audio_seconds", "data_seconds")


def keep_outcome(settings: RunSettings, run: Path, told: dict[str, Any]) -> None:
    """Keep what is ``told`` of a run that has taken all of its steps; only one rank does this."""
    write_json(_place(run), {"of": _of(settings, run), "told": {**told, **dict.fromkeys(_SPENT, 0.0)}})


def recall_outcome(settings: RunSettings, run: Path) -> dict[str, Any] | None:
    """What was told of ``run``, with nothing spent now; None where it is not complete, or not with all as it is now."""
    if not _place(run).exists() or not checkpoints(run):
        return None
    try:
        kept = read_json(_place(run))
        verify(newest(run))
        told: dict[str, Any] | None = kept["told"] if kept["of"] == _of(settings, run) else None
    except (CheckpointError, DataError, KeyError, TypeError):  # what is wrong is said by who goes on
        return None
    return told


def _place(run: Path) -> Path:
    return run / "outcome.json"


def _of(settings: RunSettings, run: Path) -> dict[str, Any]:
    sources = (*settings.train, *settings.validation.values(), *settings.test.values())
    return {
        "settings": settings.model_dump(mode="json"),
        "datasets": [Index.open(Path(source.dataset)).digest for source in sources],
        "newest": newest(run).name,
        "chosen": chosen(run).name,
    }
