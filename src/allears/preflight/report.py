"""The report of a preflight: ``report.json`` with counts and examples, ``problems.jsonl`` with all that are concerned.

Each is complete or absent. An utterance is a line of ``problems.jsonl`` once, with the kinds of all that it has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allears import __version__, files
from allears.errors import DataError
from allears.preflight.kinds import KINDS
from allears.shards import report as reports

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.preflight.findings import Finding
    from allears.preflight.settings import PreflightSettings
    from allears.preflight.survey import Survey

NAME: Final = "report.json"
PROBLEMS: Final = "problems.jsonl"
EXAMPLES: Final = 10


@dataclass(frozen=True)
class Report:
    """All that was found.

    Attributes:
        survey: of the dataset.
        found: the findings, in any order.
        settings: the thresholds.
        config: whose training was looked at; empty for none.
    """

    survey: Survey
    found: list[Finding]
    settings: PreflightSettings
    config: str

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings, faults first."""
        return sorted(self.found, key=lambda one: KINDS.index(one.kind))

    @property
    def utterances(self) -> int:
        """How many were examined."""
        return len(self.survey.index)

    @property
    def faults(self) -> int:
        """How many kinds of fault were found."""
        return sum(one.kind.gravity == "fault" for one in self.findings)

    @cached_property
    def concerned(self) -> NDArray[np.int64]:
        """Rows of the utterances that have a problem, in order."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *(one.rows for one in self.findings)]))

    @property
    def problems(self) -> int:
        """Utterances that have one, and problems of the dataset as a whole."""
        return len(self.concerned) + sum(bool(one.whole) for one in self.findings)

    @cached_property
    def prepared(self) -> dict[str, Any]:
        """What ``prepare`` said of the dataset; nothing where that is gone."""
        try:
            found = files.read_json(self.survey.index.folder / reports.NAME)
        except DataError:
            return {}
        return found if isinstance(found, dict) else {}

    def examples(self, finding: Finding, most: int = EXAMPLES) -> list[dict[str, str]]:
        """The worst utterances of a finding, and what is to be said of each."""
        rows = finding.rows[:most].tolist()
        index = self.survey.index
        return [
            {"id": index.id(row), "detail": finding.words(place), "text": index.text(row)}
            for place, row in enumerate(rows)
        ]

    def as_json(self) -> dict[str, Any]:
        """What stands in ``report.json``."""
        index = self.survey.index
        return {
            "allears": __version__,
            "dataset": str(index.folder.resolve()),
            "digest": index.digest,
            "config": self.config,
            "utterances": self.utterances,
            "hours": round(float(self.survey.seconds.sum()) / 3600, 6),
            "problems": self.problems,
            "source_rates": self.prepared.get("source_rates", {}),
            "rejected_by_prepare": _counts(self.prepared.get("rejected")),
            "findings": [
                {
                    "kind": one.kind.name,
                    "gravity": one.kind.gravity,
                    "utterances": len(one.rows),
                    "rule": one.kind.told(self.settings),
                    "remedy": one.kind.remedy,
                    **({"detail": one.whole} if one.whole else {}),
                    "examples": self.examples(one),
                }
                for one in self.findings
            ],
            "thresholds": self.settings.model_dump(),
        }

    def write(self, folder: Path) -> None:
        """Write both files to ``folder``.

        Raises:
            DataError: they cannot be written.
        """
        self._write_problems(folder / PROBLEMS)
        files.write_json(folder / NAME, self.as_json())

    def _write_problems(self, path: Path) -> None:
        """One line an utterance; kinds are held as bits meanwhile, for there may be millions."""
        bits = np.zeros(len(self.concerned), dtype=np.uint64)
        for place, one in enumerate(self.findings):
            bits[np.searchsorted(self.concerned, one.rows)] |= np.uint64(1 << place)
        names = [one.kind.name for one in self.findings]
        index = self.survey.index
        with files.written(path) as file:
            for row, held in zip(self.concerned.tolist(), bits.tolist(), strict=True):
                kinds = [name for place, name in enumerate(names) if held >> place & 1]
                file.write(json.dumps({"id": index.id(row), "kinds": kinds}, ensure_ascii=False).encode() + b"\n")


def _counts(rejected: Any) -> dict[str, int]:
    """Reasons and numbers of what ``prepare`` rejected."""
    return {reason: one["utterances"] for reason, one in rejected.items()} if isinstance(rejected, dict) else {}
