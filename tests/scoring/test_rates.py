from __future__ import annotations

import pytest

from allears.scoring.rates import RATES, UNITS, Count, Unit, count, total, units


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("the  cat\tsat", "word", ["the", "cat", "sat"]),
        ("the cat", "character", list("thecat")),
        ("我说 hello world 你", "mixed", ["我", "说", "hello", "world", "你"]),
        ("看iPhone手机", "mixed", ["看", "iPhone", "手", "机"]),
        ("カタカナ と 한글", "mixed", list("カタカナと한글")),
        ("it's 50", "mixed", ["it's", "50"]),
        (" ", "word", []),
        (" ", "character", []),
        (" ", "mixed", []),
    ],
)
def test_a_text_falls_into_units(text: str, unit: Unit, expected: list[str]) -> None:
    assert units(text, unit) == expected


@pytest.mark.parametrize(
    ("reference", "hypothesis", "unit", "expected"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", "word", Count(6, 0, 0, 0)),
        ("the cat sat on the mat", "the bat sat the mat now", "word", Count(6, 1, 1, 1)),
        ("the cat sat", "cat sat", "word", Count(3, 0, 0, 1)),
        ("cat sat", "the cat sat down", "word", Count(2, 0, 2, 0)),
        ("kitten", "sitting", "character", Count(6, 2, 1, 0)),
        ("a b", "ab", "character", Count(2, 0, 0, 0)),
        ("我要 buy 两 个", "我 要 by 两个", "mixed", Count(5, 1, 0, 0)),
        ("我要 buy", "要 buy it", "mixed", Count(3, 0, 1, 1)),
        ("", "", "word", Count(0, 0, 0, 0)),
        ("", "a b", "word", Count(0, 0, 2, 0)),
        ("a b", "", "word", Count(2, 0, 0, 2)),
    ],
)
def test_errors_are_those_counted_by_hand(reference: str, hypothesis: str, unit: Unit, expected: Count) -> None:
    assert count(reference, hypothesis, unit) == expected


def test_a_rate_is_errors_over_units() -> None:
    assert Count(8, 1, 2, 3).errors == 6
    assert Count(8, 1, 2, 3).rate == 0.75
    assert Count(2, 0, 5, 0).rate == 2.5
    assert Count(0, 0, 0, 0).rate == 0.0
    assert Count(0, 0, 4, 0).rate == 1.0


def test_counts_are_added_before_they_are_divided() -> None:
    pairs = [("a", "b"), ("a b c d e f g h i", "a b c d e f g h i"), ("", "x")]
    assert Count(1, 2, 3, 4) + Count(10, 20, 30, 40) == Count(11, 22, 33, 44)
    assert total(pairs, "word") == Count(10, 1, 1, 0)
    assert total(pairs, "word").rate == 0.2
    assert total([], "word") == Count()


def test_every_unit_has_a_rate() -> None:
    assert [RATES[unit] for unit in UNITS] == ["wer", "cer", "mer"]
