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


# (reference, hypothesis, units, substitutions, insertions, deletions), counted by hand.
MIXED = [
    ("我要订 flight 去北京", "我要订 flight 去北京", 7, 0, 0, 0),
    ("我要订 flight 去北京", "我要订 fly 去北京", 7, 1, 0, 0),
    ("我要订 flight 去北京", "我要 flight 去北京", 7, 0, 0, 1),
    ("我要订 flight 去北京", "我要订 a flight 去北京", 7, 0, 1, 0),
    ("我要订 flight 去北京", "我要订去北京", 7, 0, 0, 1),
    ("打开 wifi", "打开 wi fi", 3, 1, 1, 0),
    ("打开 wi fi", "打开wifi", 4, 1, 0, 1),
    ("这个 app 很好用", "这 个 app 很 好 用", 6, 0, 0, 0),
    ("这个app很好用", "这个 app 很好用", 6, 0, 0, 0),
    ("这个 app 很好用", "那个 app 很好", 6, 1, 0, 1),
    ("ok 我知道了", "我知道了 ok", 5, 0, 1, 1),
    ("thank you 谢谢", "谢谢", 4, 0, 0, 2),
    ("谢谢", "thank you", 2, 2, 0, 0),
    ("メール を send する", "メール を sent する", 7, 1, 0, 0),
    ("コーヒー please", "コーヒー", 5, 0, 0, 1),
    ("나는 coffee 좋아", "나는 coffee 좋아해", 5, 0, 1, 0),
    ("it's 三点半", "its 三点", 4, 1, 0, 1),
    ("go go 加油", "go 加油 加油", 4, 1, 1, 0),
    ("", "嗯 yes", 0, 0, 2, 0),
    ("嗯 yes", "", 2, 0, 0, 2),
]


@pytest.mark.parametrize(("reference", "hypothesis", "size", "wrong", "more", "fewer"), MIXED)
def test_mixed_scripts_are_counted_as_by_hand(
    reference: str, hypothesis: str, size: int, wrong: int, more: int, fewer: int
) -> None:
    found = count(reference, hypothesis, "mixed")
    assert (found.units, found.errors) == (size, wrong + more + fewer)
    assert found == Count(size, wrong, more, fewer)


def test_the_mixed_pairs_together() -> None:
    assert total([(one[0], one[1]) for one in MIXED], "mixed") == Count(
        *(sum(one[column] for one in MIXED) for column in (2, 3, 4, 5))
    )
