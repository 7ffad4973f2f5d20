from __future__ import annotations

import re

import pytest

from allears.scoring.scripts import HAN_KANA, HANGUL, SOUTH_EAST, joined


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], ""),
        (["", ""], ""),
        (["good", "morning"], "good morning"),
        (["早上", "好"], "早上好"),
        (["早上", "", "好"], "早上好"),
        (["说", "hello"], "说 hello"),
        (["hello", "吗"], "hello 吗"),
        (["カタ", "かな"], "カタかな"),
        (["안녕", "하세요"], "안녕 하세요"),
    ],
)
def test_texts_are_joined_as_their_script_is_written(texts: list[str], expected: str) -> None:
    assert joined(texts) == expected


def test_scripts_do_not_overlap() -> None:
    letters = "aé你々〇のカ한ไลကខ，。1"
    found = {name: re.findall(f"[{name}]", letters) for name in (HAN_KANA, HANGUL, SOUTH_EAST)}
    assert found == {HAN_KANA: list("你々〇のカ"), HANGUL: ["한"], SOUTH_EAST: list("ไลကខ")}
