"""Twenty pairs of mixed scripts, their errors counted by hand."""

from __future__ import annotations

import pytest

from allears.scoring.rates import Count, count, total

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
    summed = Count(*(sum(column) for column in list(zip(*(one[2:] for one in MIXED), strict=True))))
    assert total([(one[0], one[1]) for one in MIXED], "mixed") == summed
