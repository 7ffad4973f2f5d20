from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allears.errors import SettingsError
from allears.scoring.normalise import basic, normaliser, verbatim
from allears.scoring.rates import UNITS, count
from allears.text.normalise import NormaliserSettings, normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", "hello world"),
        ("  it’s   fine\t", "it's fine"),
        ("'tis the dogs' rock'n'roll", "tis the dogs rock'n'roll"),
        ("twenty-one", "twenty one"),
        ("<NOISE> yes [vocalized-noise] no <unk> {COUGH}", "yes no"),
        ("＜ＴＡＧ＞ok", "ok"),
        ("a < b and c > d", "a b and c d"),
        ("[laughter-yes] no", "yes no"),
        ("[1] x [a b]", "1 x a b"),
        ("ŉ", "n"),
        ("你 好，世 界。", "你好世界"),
        ("我 说 Hello你", "我说 hello 你"),
        ("世'界", "世界"),
        ("カ タ カ ナ", "カタカナ"),
        ("ｶﾞ１２３ＡＢＣ", "ガ 123abc"),
        ("한국 사람", "한국 사람"),
        ("Cafe\u0301", "café"),
        ("so\u00adft zero\u200bwidth \ufeffmark", "soft zerowidth mark"),
        ("I ❤️ 👍🏽 it 1️⃣", "i it 1"),
        ("السَّلامُ، عليكـــم؟", "السلام عليكم"),
        ("שָׁלוֹם", "שלום"),
        ("\u3164one", "one"),
        ("दि'x", "दि'x"),
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


PIECES = st.sampled_from(
    [*"aZ'’.,<>[]{}/|- \t世かカ゛ﾞ。한eİΣſŉﷺ１\u0301\u3099\u064b\u05c1\u0640\u3164\u200d\ufe0f", "<COMMA>", "[laughter-"]
)
TEXTS = st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=20).map("".join))


@given(TEXTS)
@example("ŉ")
@example("か.\u3099")
def test_basic_is_done_once_and_never_fails(text: str) -> None:
    once = basic(text)
    assert basic(once) == once
    assert once == " ".join(once.split())


@given(TEXTS, st.booleans(), st.booleans())
@example("مَرحَبًا بِكُم", True, False)
@example("{COUGH} [laughter-yes] a < b and c > d", False, True)
@example("打开wifi", True, False)
@example("<<A>B>", False, True)
@example("A.Σ", True, True)
def test_no_training_text_is_an_error(text: str, lowercase: bool, punctuation: bool) -> None:
    settings = NormaliserSettings(lowercase=lowercase, punctuation=punctuation)
    assert basic(normalise(text, settings)) == basic(text)


def test_a_perfect_hypothesis_has_no_error() -> None:
    for text in ("مَرحَبًا بِكُم", "كـــتاب", "שָׁלוֹם", "{COUGH} yes", "[laughter-yes] no", "a < b and c > d", "\u3164 one"):
        heard = normalise(text, NormaliserSettings())
        for unit in UNITS:
            found = count(basic(text), basic(heard), unit)
            assert (found.errors, found.units > 0) == (0, True), text


def test_a_name_that_is_not_known_names_the_nearest() -> None:
    assert normaliser("basic") is basic
    with pytest.raises(SettingsError, match="'bacis' is not known; did you mean 'basic'"):
        normaliser("bacis")
    with pytest.raises(SettingsError, match="there are basic, verbatim"):
        normaliser("whisper")
