from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allears.scoring.align import aligned
from allears.scoring.rates import count

WORDS = st.lists(st.sampled_from(["a", "the", "你", "ｗ", "longer"]), max_size=20).map(" ".join)


def test_units_stand_over_each_other() -> None:
    assert aligned("the cat sat on it", "a cat on it mat", "word") == [
        (
            "the cat sat on it ***",
            "a   cat *** on it mat",
            "S       D         I",
        )
    ]


def test_wide_characters_take_two_columns() -> None:
    assert aligned("我要 buy", "要 by", "mixed") == [("我 要 buy", "** 要 by", "D     S")]


def test_long_lines_are_broken_between_units() -> None:
    lines = aligned("one two three four", "one too three four", "word", width=9)
    assert lines == [("one two", "one too", "    S"), ("three", "three", ""), ("four", "four", "")]


def test_nothing_has_no_line() -> None:
    assert aligned("", "", "word") == []
    assert aligned("", "a", "word") == [("*", "a", "I")]


@given(WORDS, WORDS)
def test_there_are_as_many_marks_as_errors(reference: str, hypothesis: str) -> None:
    marks = " ".join(mark for _, _, mark in aligned(reference, hypothesis, "mixed", width=30)).split()
    found = count(reference, hypothesis, "mixed")
    assert [marks.count(kind) for kind in "SID"] == [found.substitutions, found.insertions, found.deletions]
