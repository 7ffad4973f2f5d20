"""What is found in a survey: each check takes columns and gives the utterances that it concerns, the worst first."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allears.preflight import kinds, transcript
from allears.preflight.survey import BAD_SHARD, UNREADABLE
from allears.preflight.transcript import DAMAGED, NO_LETTERS, SCRIPTS, TWO_SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from allears.preflight.kinds import Kind
    from allears.preflight.settings import PreflightSettings
    from allears.preflight.survey import Survey

    Rows = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Words = Callable[[int], str]

MOST_OF_A_LANGUAGE = 0.95
"""Share of a language's transcripts that must be in one script for the others to be suspicious."""


@dataclass(frozen=True)
class Finding:
    """One kind of problem and the utterances that have it.

    Attributes:
        kind: of problem.
        rows: of the index [n], the worst first.
        words: place in ``rows`` → what is to be said of that utterance.
        whole: what is to be said of the dataset as a whole, where it is no matter of single utterances.
    """

    kind: Kind
    rows: Rows
    words: Words
    whole: str = ""

    @classmethod
    def of_all(cls, kind: Kind, sentence: str) -> Finding:
        """A problem of the dataset as a whole."""
        return cls(kind, np.zeros(0, np.int64), lambda _: "", sentence)

    def __bool__(self) -> bool:
        return bool(len(self.rows) or self.whole)


def find(survey: Survey, settings: PreflightSettings) -> list[Finding]:
    """All that columns and texts tell; kinds without an utterance are left out."""
    checks = (_audio_problems, _levels, _bands, _texts, _rates, _letters, _repeats, _shared)
    return [found for check in checks for found in check(survey, settings) if found]


def ranked(kind: Kind, at: Flags, badness: NDArray[np.floating] | None, words: Callable[[int], str]) -> Finding:
    """The utterances ``at`` [n], the greatest ``badness`` [n] first; ``words`` takes a row."""
    rows = np.flatnonzero(at)
    if badness is not None:
        rows = rows[np.argsort(-badness[rows], kind="stable")]
    return Finding(kind, rows, lambda place: words(int(rows[place])))


def _audio_problems(survey: Survey, _: PreflightSettings) -> Iterator[Finding]:
    problem, details = survey.columns["problem"], survey.details
    yield ranked(kinds.BAD_SHARD, problem == BAD_SHARD, None, lambda row: details.get(row, "its shard is damaged"))
    yield ranked(kinds.UNREADABLE, problem == UNREADABLE, None, lambda row: details.get(row, "it cannot be decoded"))


def _levels(survey: Survey, settings: PreflightSettings) -> Iterator[Finding]:
    columns, readable = survey.columns, survey.readable
    silent, whole = columns["silent"], columns["silent"] == 1
    offset = np.abs(columns["offset"])
    judged = readable & (survey.seconds >= settings.noise_seconds) & ~whole
    for kind, at, badness, words in (
        (kinds.SILENT, readable & whole, -columns["level"], lambda row: f"{columns['level'][row]:.1f} dBFS"),
        (
            kinds.MOSTLY_SILENT,
            readable & ~whole & (silent > settings.silent_share),
            silent,
            lambda row: f"{silent[row]:.0%} of it is silent",
        ),
        (
            kinds.PAUSE,
            readable & ~whole & (columns["pause"] > settings.pause_seconds),
            columns["pause"],
            lambda row: f"silent for {columns['pause'][row]:.2f} s",
        ),
        (
            kinds.CLIPPED,
            readable & (columns["clipped"] > settings.clipped_share),
            columns["clipped"],
            lambda row: f"{columns['clipped'][row]:.2%} of the samples",
        ),
        (
            kinds.OFFSET,
            readable & (offset > settings.offset),
            offset,
            lambda row: f"a mean of {columns['offset'][row]:+.1%} of full scale",
        ),
        (
            kinds.NOISY,
            judged & (columns["snr"] < settings.noisy),
            -columns["snr"],
            lambda row: f"{columns['snr'][row]:.1f} dB",
        ),
    ):
        yield ranked(kind, at, badness, words)


def _bands(survey: Survey, settings: PreflightSettings) -> Iterator[Finding]:
    bandwidth = survey.columns["bandwidth"]
    heard = survey.readable & (bandwidth > 0)
    narrow = heard & (bandwidth <= settings.narrow_hertz)
    if narrow.any() and not (heard & ~narrow).any():
        yield Finding.of_all(kinds.ALL_NARROW, f"no utterance holds anything above {bandwidth.max():g} Hz")
        return
    yield ranked(kinds.NARROW, narrow, -bandwidth, lambda row: f"nothing above {bandwidth[row]:g} Hz")


def _texts(survey: Survey, _: PreflightSettings) -> Iterator[Finding]:
    index, marks = survey.index, survey.columns["marks"]

    def pieces(row: int) -> str:
        return ", ".join(map(repr, transcript.damaged(index.text(row))))

    def words(row: int) -> str:
        return ", ".join(transcript.of_two_scripts(index.text(row)))

    yield ranked(kinds.NO_LETTERS, marks & NO_LETTERS > 0, None, lambda _: "nothing is left of it")
    yield ranked(kinds.DAMAGED_TEXT, marks & DAMAGED > 0, None, pieces)
    yield ranked(kinds.TWO_SCRIPTS, marks & TWO_SCRIPTS > 0, None, words)
    at, usual = _foreign(survey)
    script = survey.columns["script"]
    yield ranked(
        kinds.OTHER_SCRIPT,
        at,
        None,
        lambda row: f"{SCRIPTS[script[row]]} among {SCRIPTS[usual[int(index.language_codes[row])]]}",
    )


def _foreign(survey: Survey) -> tuple[Flags, dict[int, int]]:
    """Utterances [n] in another script than nearly all of their language, and that script by language code."""
    script, languages = survey.columns["script"], survey.index.language_codes
    at = np.zeros(len(script), dtype=bool)
    usual: dict[int, int] = {}
    for language in np.unique(languages).tolist():
        inside = (languages == language) & (script > 0)
        counts = np.bincount(script[inside], minlength=len(SCRIPTS))
        usual[language] = int(counts.argmax())
        if counts.max() >= MOST_OF_A_LANGUAGE * counts.sum():
            at |= inside & (script != usual[language])
    return at, usual


def _rates(survey: Survey, settings: PreflightSettings) -> Iterator[Finding]:
    """Letters per second, beside the median of the same language and script."""
    letters, script, languages = survey.columns["letters"], survey.columns["script"], survey.index.language_codes
    usable = survey.readable & (letters > 0)
    rate = np.full(len(letters), np.nan)
    rate[usable] = letters[usable] / survey.seconds[usable]
    times = np.ones(len(letters))  # of the median
    far = np.zeros(len(letters), dtype=bool)
    groups = languages.astype(np.int64) * len(SCRIPTS) + script
    for group in np.unique(groups[usable]).tolist():
        inside = np.flatnonzero(usable & (groups == group))
        if len(inside) < settings.least_utterances:
            continue
        logarithms = np.log(rate[inside])
        middle = np.median(logarithms)
        deviation = 1.4826 * np.median(np.abs(logarithms - middle))  # as the standard deviation of a normal one
        times[inside] = np.exp(logarithms - middle)
        far[inside] = np.abs(logarithms - middle) > settings.speech_rate_deviations * deviation

    def words(row: int) -> str:
        return f"{rate[row]:.1f} letters a second, the median is {rate[row] / times[row]:.1f}"

    yield ranked(kinds.FAST, far & (times > settings.speech_rate), times, words)
    yield ranked(kinds.SLOW, far & (times * settings.speech_rate < 1), -times, words)


def _letters(survey: Survey, settings: PreflightSettings) -> Iterator[Finding]:
    """Letters that too few utterances hold to be learnt."""
    letters = survey.letters
    holds: dict[int, list[str]] = {}
    if len(survey.index) >= settings.least_utterances:
        for letter, count in letters.counts.items():
            for row in letters.rows[letter] if count <= settings.rare_utterances else ():
                holds.setdefault(row, []).append(letter)
    rows = np.array(sorted(holds), dtype=np.int64)
    yield Finding(
        kinds.RARE,
        rows,
        lambda place: ", ".join(f"{one} ({unicodedata.name(one, 'no name')})" for one in holds[int(rows[place])]),
    )


def _repeats(survey: Survey, settings: PreflightSettings) -> Iterator[Finding]:
    """Audio that is there before, and long texts that stand too often."""
    columns, index = survey.columns, survey.index
    first = firsts(columns["audio"], survey.readable)
    tested = _tested(survey)
    again = survey.readable & (first != np.arange(len(first))) & (tested[first] == tested)  # else it is `_shared`
    yield ranked(kinds.SAME_AUDIO, again, None, lambda row: f"the same as {index.id(int(first[row]))}")
    long = columns["weight"] >= settings.long_letters
    original = firsts(columns["text"], long)
    counts = np.bincount(original[long], minlength=len(original))
    times = np.where(long, counts[original], 0)
    yield ranked(
        kinds.REPEATED,
        times >= settings.repeated,
        times.astype(np.float64),
        lambda row: f"{times[row]} times",
    )


def firsts(digests: NDArray[np.uint64], among: Flags) -> Rows:
    """The first row [n] with the same digest, ``among`` which is looked; its own row for the others."""
    first = np.arange(len(digests))
    rows = np.flatnonzero(among)
    order = rows[np.argsort(digests[rows], kind="stable")]
    new = np.ones(len(order), dtype=bool)
    new[1:] = digests[order[1:]] != digests[order[:-1]]
    first[order] = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    return first


def _tested(survey: Survey) -> Flags:
    """Which utterances [n] stand in a split that is not trained on; none where no split is called train."""
    trained = np.array(["train" in name.lower() for name in survey.index.splits] or [True])
    if not trained.any():
        return np.zeros(len(survey.index), dtype=bool)
    found: Flags = ~trained[survey.index.split_codes]
    return found


def _shared(survey: Survey, settings: PreflightSettings) -> Iterator[Finding]:
    """What stands on both sides of the line between training and test."""
    columns, index = survey.columns, survey.index
    tested = _tested(survey)
    readable, long = survey.readable, columns["weight"] >= settings.long_letters
    speakers = index.speaker_codes.astype(np.uint64)
    named = np.array([bool(name) for name in index.speakers] or [False])[index.speaker_codes]
    for kind, values, among, what in (
        (kinds.SHARED_AUDIO, columns["audio"], readable, "the same as"),
        (kinds.SHARED_SPEAKER, speakers, named, "the speaker of"),
        (kinds.SHARED_TEXT, columns["text"], long, "the text of"),
    ):
        partner = _partners(values, among & ~tested, among & tested)
        yield ranked(
            kind,
            partner >= 0,
            None,
            lambda row, partner=partner, what=what: (  # type: ignore[misc]
                f"in {index.split(row) or 'no split'}, {what} {index.id(int(partner[row]))} "
                f"in {index.split(int(partner[row]))}"
            ),
        )


def _partners(values: NDArray[np.uint64], here: Flags, there: Flags) -> Rows:
    """For each row ``there`` [n] the first row ``here`` [n] with its value, else -1."""
    partner = np.full(len(values), -1, dtype=np.int64)
    known, rows = np.unique(values[here], return_index=True)
    wanted = np.flatnonzero(there)
    if len(known) and len(wanted):
        at = np.minimum(np.searchsorted(known, values[wanted]), len(known) - 1)
        same = known[at] == values[wanted]
        partner[wanted[same]] = np.flatnonzero(here)[rows[at[same]]]
    return partner
