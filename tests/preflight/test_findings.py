"""What is found in columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allears.preflight.findings import Finding, find, firsts
from allears.preflight.kinds import KINDS
from allears.preflight.settings import PreflightSettings
from allears.preflight.survey import Letters, Survey

if TYPE_CHECKING:
    from collections.abc import Callable

    Surveyed = Callable[..., Survey]

SETTINGS = PreflightSettings()
TEXTS = [f"sentence number {number}" for number in ("one", "two", "three", "four")]


def found_in(survey: Survey, settings: PreflightSettings = SETTINGS) -> dict[str, list[int]]:
    return {one.kind.name: one.rows.tolist() for one in find(survey, settings)}


def finding(survey: Survey, name: str) -> Finding:
    (one,) = [one for one in find(survey, SETTINGS) if one.kind.name == name]
    return one


def test_nothing_is_found_where_nothing_is_wrong(surveyed: Surveyed) -> None:
    assert found_in(surveyed(TEXTS)) == {}


@pytest.mark.parametrize(
    ("column", "values", "kind", "rows"),
    [
        ("problem", [0, 1, 0, 2], "unreadable", [1]),
        ("problem", [0, 1, 0, 2], "damaged shard", [3]),
        ("silent", [0.1, 1, 0.5, 1], "silent", [1, 3]),
        ("silent", [0.1, 1, 0.6, 0.9], "mostly silent", [3, 2]),
        ("pause", [0, 2, 2.5, 9], "long pause", [3, 2]),
        ("clipped", [0, 0.001, 0.5, 0.002], "clipped", [2, 3]),
        ("offset", [0, -0.1, 0.01, 0.03], "DC offset", [1, 3]),
        ("snr", [30, np.nan, 7, -3], "noisy", [3, 2]),
        ("bandwidth", [8000, 4000, 0, 3500], "narrow band", [3, 1]),
        ("audio", [5, 6, 5, 5], "same audio", [2, 3]),
    ],
)
def test_the_worst_come_first(surveyed: Surveyed, column: str, values: list[float], kind: str, rows: list[int]) -> None:
    assert found_in(surveyed(TEXTS, **{column: values}))[kind] == rows


def test_what_cannot_be_read_is_not_judged_by_its_sound(surveyed: Surveyed) -> None:
    silent = {"problem": [1] * 4, "silent": [1] * 4, "clipped": [1] * 4, "audio": [0] * 4, "bandwidth": [0] * 4}
    assert found_in(surveyed(TEXTS, **silent)) == {"unreadable": [0, 1, 2, 3]}


def test_a_telephone_corpus_is_said_once(surveyed: Surveyed) -> None:
    one = finding(surveyed(TEXTS, bandwidth=[4000, 4000, 3500, 0]), "all narrow band")
    assert len(one.rows) == 0
    assert "4000 Hz" in one.whole


def test_short_utterances_are_not_called_noisy(surveyed: Surveyed) -> None:
    assert found_in(surveyed(TEXTS, snr=[1] * 4, samples=[8000, 16_000, 32_000, 15_000])) == {"noisy": [1, 2]}


def test_texts(surveyed: Surveyed) -> None:
    texts = ["...", "fish &amp; chips", "th\u0435 door", *["some plain words"] * 60, "поставьте будильник"]
    survey = surveyed(texts)
    found = found_in(survey)
    assert found["no letters"] == [0]
    assert found["damaged text"] == [1]
    assert found["two scripts in a word"] == [2]
    assert found["another script"] == [63]
    assert finding(survey, "another script").words(0) == "Cyrillic among Latin"
    assert finding(survey, "two scripts in a word").words(0) == "th\u0435"


def test_two_languages_have_two_scripts(surveyed: Surveyed) -> None:
    texts = ["plain words here"] * 30 + ["今天天气很好"] * 30
    assert found_in(surveyed(texts, language=["en"] * 30 + ["zh"] * 30)) == {}
    assert found_in(surveyed(texts, language=[""] * 60)) == {}  # not said, and half of each


def test_letters_per_second(surveyed: Surveyed) -> None:
    rng = np.random.default_rng(0)
    texts = ["abcd " * int(size) for size in rng.integers(5, 8, 60)] + ["no", "abcd " * 30]
    survey = surveyed(texts)
    found = found_in(survey)
    assert (found["too few letters"], found["too many letters"]) == ([60], [61])
    assert "60.0 letters a second, the median is" in finding(survey, "too many letters").words(0)
    assert "too many letters" not in found_in(survey, PreflightSettings(least_utterances=100))
    digits = ["six", "seventeen hundreds"] * 40  # any rate is usual here
    assert "too many letters" not in found_in(surveyed(digits))


def test_repeated_texts_are_long_ones(surveyed: Surveyed) -> None:
    long = "she had your dark suit in greasy wash water all year"
    survey = surveyed([long, "yes", *["yes"] * 5, *[long.upper()] * 4])
    assert found_in(survey) == {"repeated text": [0, 7, 8, 9, 10]}
    assert finding(survey, "repeated text").words(0) == "5 times"


def test_train_and_test(surveyed: Surveyed) -> None:
    long = "the quick brown fox jumps over the lazy dog and sleeps"
    split = ["train-clean", "test", "dev", "test", "train-clean"]
    survey = surveyed(
        [long, long, "short", "short", "short"],
        split=split,
        speaker=["ann", "bob", "ann", "", ""],
        audio=[1, 2, 3, 9, 9],
    )
    assert found_in(survey) == {
        "audio in train and test": [3],
        "speaker in train and test": [2],
        "text in train and test": [1],
    }
    assert finding(survey, "audio in train and test").words(0) == "in test, the same as u4 in train-clean"
    assert "speaker in train and test" not in found_in(surveyed(["a", "b"], split=["one", "two"], speaker=["x", "x"]))


def test_rare_letters(surveyed: Surveyed) -> None:
    survey = surveyed(["plain"] * 60)
    letters = Letters(Counter({"ß": 1, "é": 3, "ø": 2}), {"ß": [7], "é": [1, 2], "ø": [3, 7]})
    survey = Survey(survey.index, survey.columns, {}, letters)
    assert found_in(survey) == {"rare letters": [3, 7]}
    assert finding(survey, "rare letters").words(1) == (
        "ß (LATIN SMALL LETTER SHARP S), ø (LATIN SMALL LETTER O WITH STROKE)"
    )


def test_the_first_of_equal_digests() -> None:
    digests = np.array([7, 3, 7, 3, 7, 1], np.uint64)
    assert firsts(digests, np.ones(6, bool)).tolist() == [0, 1, 0, 1, 0, 5]
    assert firsts(digests, np.array([0, 1, 1, 1, 1, 1], bool)).tolist() == [0, 1, 2, 1, 2, 5]


def test_kinds_have_names_of_their_own_and_faults_come_first() -> None:
    assert len({one.name for one in KINDS}) == len(KINDS)
    gravities = [one.gravity for one in KINDS]
    assert gravities == sorted(gravities)
    for one in KINDS:
        assert "{" not in one.told(SETTINGS)
