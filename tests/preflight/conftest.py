"""Surveys without audio: an index on disk, and columns that say what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allears.manifest import index, manifest
from allears.manifest.index import Index, Row, ShardFile
from allears.preflight import transcript
from allears.preflight.survey import COLUMNS, Survey
from allears.types import Utterance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Surveyed = "Callable[..., Survey]"


@pytest.fixture
def surveyed(tmp_path: Path) -> Callable[..., Survey]:
    """A survey of utterances with these texts: 2 s each, sounding well, of one speaker a split, in English."""

    def made(texts: Sequence[str], **more: Sequence[Any]) -> Survey:
        def of(name: str, row: int, otherwise: Any) -> Any:
            return more[name][row] if name in more else otherwise

        lines = [
            Utterance(
                f"u{row}",
                "a.wav",
                text,
                0.0,
                2.0,
                of("speaker", row, of("split", row, "train")),
                of("language", row, "en"),
                of("split", row, "train"),
            )
            for row, text in enumerate(texts)
        ]
        rows = [Row(one.id, one.text, one.speaker, one.language, one.split, 32_000, 0, 0, 1) for one in lines]
        manifest.write(tmp_path / manifest.NAME, lines)
        index.write(tmp_path, rows, "pcm16", [ShardFile("shards/0.h5", 1, "")])
        columns = np.zeros(len(texts), COLUMNS)
        columns["samples"], columns["audio"] = 32_000, np.arange(len(texts))
        columns["level"], columns["snr"], columns["bandwidth"] = -25, 30, 8000
        for column, text in zip(columns, texts, strict=True):
            found = transcript.measure(text)
            for name in ("letters", "weight", "script", "marks"):
                column[name] = getattr(found, name)
            column["text"] = found.digest
        for name, values in more.items():
            if name in (COLUMNS.names or ()):
                columns[name] = values
        return Survey(Index.open(tmp_path), columns)

    return made
