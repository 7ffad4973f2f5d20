"""Whether the manifest says what the index and the audio say, line by line."""

from __future__ import annotations

from array import array
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from allears.errors import DatasetError
from allears.manifest import manifest
from allears.preflight import kinds
from allears.preflight.findings import Finding
from allears.preflight.survey import DETAILS
from allears.reporting import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allears.preflight.kinds import Kind
    from allears.preflight.settings import PreflightSettings
    from allears.preflight.survey import Survey
    from allears.types import Utterance

_BLOCK = 1000


def compare(survey: Survey, settings: PreflightSettings) -> list[Finding]:
    """Lengths that are wrong, and lines that differ from the index; a manifest that cannot be read is a finding too."""
    index, seconds = survey.index, survey.seconds
    lengths = np.where(survey.readable, survey.columns["samples"] - index.samples, 0)
    wrong, stale = _Said(), _Said()
    for row in np.flatnonzero(lengths).tolist():
        wrong.add(row, f"{lengths[row]:+,} samples beside the index")
    trouble = ""
    try:
        for row, line in _lines(survey):
            if line is None or row == len(index):
                what = "fewer" if line is None else "more"
                trouble = f"{manifest.NAME} has {what} lines than the index has utterances ({len(index):,})."
                break
            if line.id != index.id(row):
                stale.add(row, f"line {row + 1} is of {line.id}")
            elif line.text != index.text(row):
                stale.add(row, f"{line.text!r} in the manifest, {index.text(row)!r} in the index")
            elif line.duration is not None and abs(line.duration - seconds[row]) > settings.duration_seconds:
                wrong.add(row, f"{line.duration:g} s in the manifest, {seconds[row]:.3f} s in truth")
    except DatasetError as error:
        trouble = str(error)
    return [one for one in (wrong.finding(kinds.DURATION), stale.finding(kinds.STALE, trouble)) if one]


class _Said:
    """Rows, and what is to be said of the first thousands: where all differ, no more need be read."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._words: dict[int, str] = {}

    def add(self, row: int, words: str) -> None:
        self._rows.append(row)
        if len(self._words) < DETAILS:
            self._words.setdefault(row, words)

    def finding(self, kind: Kind, whole: str = "") -> Finding:
        rows = np.unique(np.asarray(self._rows, dtype=np.int64))
        return Finding(kind, rows, lambda place: self._words.get(int(rows[place]), kind.name), whole)


def _lines(survey: Survey) -> Iterator[tuple[int, Utterance | None]]:
    """Rows of the index with their lines of the manifest; where one has less of them, the first beyond ends it."""
    index = survey.index
    with Progress("comparing the manifest", len(index), "utterances") as progress:
        for row, line in zip_longest(range(len(index)), manifest.read(index.folder / manifest.NAME)):
            yield (len(index) if row is None else row), line
            if (row or 0) % _BLOCK == _BLOCK - 1:
                progress.advance(_BLOCK)
