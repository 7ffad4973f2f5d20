from __future__ import annotations

import pytest

from allears.scoring.headline import headline

CHINESE, ENGLISH, THAI = "今天天气很好", "the weather is fine today", "สวัสดีครับ วันนี้"
MIXED = "我要 check in 这个 flight"


@pytest.mark.parametrize(
    ("references", "languages", "expected"),
    [
        ([ENGLISH], ["en"], "word"),
        ([ENGLISH], [], "word"),
        ([CHINESE], [], "character"),
        ([CHINESE], [""], "character"),
        ([CHINESE], ["zh-CN", "ja"], "character"),
        ([CHINESE], ["zh_TW", ""], "character"),
        ([CHINESE], ["en"], "word"),
        (["ni hao"], ["zh"], "character"),
        ([THAI], [], "character"),
        ([THAI], ["th"], "character"),
        (["안녕하세요 여러분"], [], "word"),
        (["안녕하세요 여러분"], ["ko"], "word"),
        ([MIXED], [], "mixed"),
        ([MIXED], ["zh"], "mixed"),
        ([CHINESE, ENGLISH], ["zh", "en"], "mixed"),
        ([CHINESE * 10, "NBA"], [], "character"),
        ([ENGLISH] * 10 + ["北"], [], "word"),
        (["2023年12月"], [], "character"),
        ([], [], "word"),
        (["", "..."], [], "word"),
    ],
)
def test_the_language_or_else_the_script_says_what_is_counted(
    references: list[str], languages: list[str], expected: str
) -> None:
    assert headline(references, languages) == expected
