from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allears.errors import SettingsError
from allears.scoring.normalise import basic, normaliser, verbatim


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", "hello world"),
        ("  it’s   fine\t", "it's fine"),
        ("'tis the dogs' rock'n'roll", "tis the dogs rock'n'roll"),
        ("twenty-one", "twenty one"),
        ("<NOISE> yes [laughs out loud] no <unk>", "yes no"),
        ("＜ＴＡＧ＞ok", "ok"),
        ("a < b", "a b"),
        ("你 好，世 界。", "你好世界"),
        ("我 说 Hello 你", "我说 hello 你"),
        ("カ タ カ ナ", "カタカナ"),
        ("ｶﾞ１２３ＡＢＣ", "ガ123abc"),
        ("한국 사람", "한국 사람"),
        ("Cafe\u0301", "café"),
        ("so\u00adft zero\u200bwidth \ufeffmark", "soft zerowidth mark"),
        ("I ❤️ 👍🏽 it 1️⃣", "i it 1"),
        ("السَّلامُ، عليكم؟", "السَّلامُ عليكم"),
        ("STRASSE Größe", "strasse größe"),
        ("snake_case", "snake case"),
        ("...?!", ""),
        ("", ""),
    ],
)
def test_basic_leaves_words_alone(text: str, expected: str) -> None:
    assert basic(text) == unicodedata.normalize("NFKC", expected)


def test_verbatim_changes_white_space_only() -> None:
    assert verbatim(" Hello,\u3000 <World>\n你 好 ") == "Hello, <World> 你 好"


@given(st.text())
def test_basic_is_done_once_and_never_fails(text: str) -> None:
    once = basic(text)
    assert basic(once) == once
    assert "  " not in once
    assert once == once.strip()


def test_a_name_that_is_not_known_names_the_nearest() -> None:
    assert normaliser("basic") is basic
    with pytest.raises(SettingsError, match="'bacis' is not known; did you mean 'basic'"):
        normaliser("bacis")
    with pytest.raises(SettingsError, match="there are basic, verbatim"):
        normaliser("whisper")
