from __future__ import annotations

from allears.text.vocabulary import FIRST, UNKNOWN, Characters, Words, counted


def test_characters_have_a_token_each_and_spaces_beside_cjk_none() -> None:
    known = [" ", "a", "b", "世", "界"]
    characters = Characters(known)
    assert characters.size == FIRST + 5
    assert characters.encode("ab a") == [3, 4, 2, 3]
    assert characters.encode("世界 ab 世") == [5, 6, 3, 4, 5]
    assert characters.decode([5, 6, 3, 4, 5]) == "世界 ab 世"
    assert characters.encode("axb") == [3, UNKNOWN, 4]
    assert characters.unknown("axbx") == ["x", "x"]


def test_words_have_a_token_each() -> None:
    words = Words(["on", "off", "打开"])
    assert words.size == FIRST + 3
    assert words.encode("off on of 打开") == [3, 2, UNKNOWN, 4]
    assert words.decode([3, 2, 4]) == "off on 打开"
    assert words.unknown("off of") == ["of"]


def test_what_occurs_often_enough_is_kept_in_one_order() -> None:
    assert counted(["b a", "ab c", "b"], 2) == (["a", "b"], ["c"])
    assert counted([["off", "on"], ["on"]], 1) == (["off", "on"], [])
    assert counted([], 1) == ([], [])
