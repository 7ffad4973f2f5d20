"""The report of a preparation: what is in the dataset, and what was rejected and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from allears.audio import files as audio
from allears.audio.decode import UNREADABLE
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from allears.types import Rejection, Utterance

NAME: Final = "report.json"
NO_TEXT: Final = "no text"
DUPLICATE: Final = "duplicate id"
EXAMPLES: Final = 3

REASONS: Final = (
    "bad line",
    "command not run",
    DUPLICATE,
    NO_TEXT,
    audio.MISSING,
    UNREADABLE,
    audio.EMPTY,
    audio.TOO_SHORT,
    audio.SILENT,
    audio.OUTSIDE,
)
"""Every reason for which an utterance is rejected."""


@dataclass(slots=True)
class Part:
    """A split or a language of a dataset."""

    utterances: int = 0
    samples: int = 0
    speakers: set[str] = field(default_factory=set)

    def add(self, one: Utterance, samples: int) -> None:
        """Count one utterance."""
        self.utterances += 1
        self.samples += samples
        if one.speaker:
            self.speakers.add(one.speaker)

    def as_json(self) -> dict[str, Any]:
        """Counts, and hours."""
        return {"utterances": self.utterances, "hours": hours(self.samples), "speakers": len(self.speakers)}


@dataclass(slots=True)
class Tally:
    """Counts all utterances that were kept, once."""

    total: Part = field(default_factory=Part)
    splits: dict[str, Part] = field(default_factory=dict)
    languages: dict[str, Part] = field(default_factory=dict)
    rates: Counter[int] = field(default_factory=Counter)

    def add(self, one: Utterance, samples: int, rate: int) -> None:
        """Count one utterance of ``samples`` at 16 kHz from a file of ``rate`` Hz."""
        for part in (
            self.total,
            self.splits.setdefault(one.split, Part()),
            self.languages.setdefault(one.language, Part()),
        ):
            part.add(one, samples)
        self.rates[rate] += 1

    def as_json(self) -> dict[str, Any]:
        """All counts, as they stand in a report."""
        return {
            **self.total.as_json(),
            "splits": {name: part.as_json() for name, part in self.splits.items()},
            "languages": {name: part.as_json() for name, part in self.languages.items()},
            "source_rates": {str(rate): self.rates[rate] for rate in sorted(self.rates)},
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """What a preparation did.

    Attributes:
        folder: the dataset.
        report: the contents of its ``report.json``.
        already: it was complete before, from the same corpus and settings.
    """

    folder: Path
    report: dict[str, Any]
    already: bool

    @property
    def utterances(self) -> int:
        """How many utterances the dataset has."""
        return int(self.report["utterances"])

    @property
    def hours(self) -> float:
        """Their audio."""
        return float(self.report["hours"])

    @property
    def rejected(self) -> dict[str, int]:
        """How many were rejected, by reason."""
        return {reason: one["utterances"] for reason, one in self.report["rejected"].items()}


def hours(samples: int) -> float:
    """Hours of audio at 16 kHz."""
    return round(samples / SAMPLE_RATE / 3600, 6)


def rejected(rejections: Sequence[Rejection]) -> dict[str, Any]:
    """Counts with the first examples, by reason in the order of ``REASONS``."""
    by_reason: dict[str, list[Rejection]] = {}
    for one in rejections:
        by_reason.setdefault(one.reason, []).append(one)
    return {
        reason: {
            "utterances": len(by_reason[reason]),
            "examples": [{"id": one.id, "detail": one.detail} for one in by_reason[reason][:EXAMPLES]],
        }
        for reason in sorted(by_reason, key=REASONS.index)
    }
