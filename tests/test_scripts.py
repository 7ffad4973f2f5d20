from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allears.scripts import CJK, HANGUL, SOUTH_EAST, is_cjk, packed, runs, spaced

TEXTS = st.text("ab1'., 世界あア々", max_size=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a b", "a b"),
        ("世 界", "世界"),
        ("a世b 界c d", "a 世 b 界 c d"),
        ("世,界 . a", "世,界. a"),
        ("it's 世", "it's 世"),
        ("한국 世", "한국 世"),
    ],
)
def test_a_word_beside_cjk_has_a_space_and_a_mark_has_none(text: str, expected: str) -> None:
    assert spaced(text) == expected


@given(TEXTS)
def test_the_spaces_beside_cjk_carry_nothing(text: str) -> None:
    once = spaced(text)
    assert spaced(once) == once
    assert spaced(packed(once)) == once
    assert spaced(packed(text)) == once
    assert once.replace(" ", "") == text.replace(" ", "")


@given(TEXTS)
def test_runs_alternate(text: str) -> None:
    parts = runs(text)
    assert len(parts) % 2 == 1
    assert all(part and all(map(is_cjk, part)) for part in parts[1::2])
    assert not any(map(is_cjk, "".join(parts[::2])))


def test_scripts_do_not_overlap() -> None:
    letters = "aé你々〇のカㄅ한ไลကខ，。・1"
    found = {name: re.findall(f"[{name}]", letters) for name in (CJK, HANGUL, SOUTH_EAST)}
    assert found == {CJK: list("你々〇のカㄅ"), HANGUL: ["한"], SOUTH_EAST: list("ไลကខ")}
