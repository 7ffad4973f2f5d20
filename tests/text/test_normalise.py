from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allears.errors import SettingsError
from allears.settings import build
from allears.text.normalise import STYLES, NormaliserSettings, normalise

PLAIN = NormaliserSettings()
CASED = build(NormaliserSettings, {"lowercase": False, "punctuation": True}, "test")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello,  World!", "hello world"),
        ("  DON’T ‘go’ \n", "don't 'go'"),
        ("don´t DON＇T don′t", "don't don't don't"),
        ("well-known… 50 %", "well known 50"),
        ("ｆｕｌｌ　ｗｉｄｔｈ２", "full width2"),
        ("３０ 度", "30 度"),
        ("cafe\u0301", "caf\u00e9"),
        ("caf\u0065\u200d\u0301", "caf\u00e9"),
        ("ﬁne", "fine"),
        ("हिन्दी", "हिन्दी"),
        ("STRASSE straße", "strasse straße"),
        ("?!…", ""),
        ("'", ""),
        ("say '' 'n' '", "say 'n'"),
        ("´ ¨ ˜ ｀", ""),
        ("，。！？“”", ""),
        ("", ""),
    ],
)
def test_case_punctuation_and_forms_of_the_same_letter_go(text: str, expected: str) -> None:
    assert normalise(text, PLAIN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好，世界。", "你好世界"),
        ("打 开 空 调", "打开空调"),
        ("打开wifi吧", "打开 wifi 吧"),
        ("打开  WiFi 吧", "打开 wifi 吧"),
        ("第3个、T恤", "第 3 个 t 恤"),
        ("ジョン・スミス です", "ジョンスミスです"),
        ("안녕 하세요", "안녕 하세요"),
        ("世'界", "世界"),
    ],
)
def test_cjk_text_has_one_form(text: str, expected: str) -> None:
    assert normalise(text, PLAIN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zero\u200bwidth\u200c \u200djoin", "zerowidth join"),
        ("soft\u00adhyphen", "softhyphen"),
        ("\ufeffbom", "bom"),
        ("nul\x00l\x7f\x1b", "null"),
        ("tab\tline\nend\u2028x\x85y", "tab line end x y"),
        ("half\ud800a", "halfa"),
        ("葛\U000e0100飾", "葛飾"),
        ("ok 👍🏽 👩‍👩‍👧 ❤️ 🇩🇪 yes", "ok yes"),
        ("1\ufe0f\u20e3", "1"),
        ("damaged\ufffdtext", "damaged text"),
        ("\u2066left\u2069 \u200fright", "left right"),
    ],
)
@pytest.mark.parametrize("settings", [PLAIN, CASED])
def test_what_makes_no_sound_goes(text: str, expected: str, settings: NormaliserSettings) -> None:
    assert normalise(text, settings) == expected


@pytest.mark.parametrize("settings", [PLAIN, CASED])
def test_arabic_and_hebrew_lose_points_but_no_letter(settings: NormaliserSettings) -> None:
    assert normalise("مُحَمَّدٌ", settings) == "محمد"
    assert normalise("كـــتاب", settings) == "كتاب"
    assert normalise("ﻛﺘﺎﺏ", settings) == "كتاب"  # presentation forms
    assert normalise("آ أ ؤ إ ئ ء", settings) == "آ أ ؤ إ ئ ء"  # madda and hamza are spelling
    assert normalise("שָׁלוֹם", settings) == "שלום"


@pytest.mark.parametrize(
    ("text", "plain", "cased"),
    [
        ("<UNK> Hello <NOISE> world <sil/>", "hello world", "Hello world"),
        ("[noise] yes [vocalized-noise] [LAUGHTER]", "yes", "yes"),
        ("i [laughter-don't] know", "i don't know", "i don't know"),
        ("{COUGH} so <|nospeech|>", "so", "so"),
        ("＜ＵＮＫ＞ so", "so", "so"),
        ("HELLO <COMMA> WORLD <PERIOD>", "hello world", "HELLO, WORLD."),
        ("REALLY <QUESTIONMARK> OH <EXCLAMATIONPOINT>", "really oh", "REALLY? OH!"),
        ("a < b and c > d", "a b and c d", "a < b and c > d"),
        ("[1] x [a b]", "1 x a b", "[1] x [a b]"),
        ("<<A>B>", "b", "< B>"),
        ("<UNK>", "", ""),
    ],
)
def test_annotations_go_and_tagged_punctuation_is_punctuation(text: str, plain: str, cased: str) -> None:
    assert normalise(text, PLAIN) == plain
    assert normalise(text, CASED) == cased


def test_case_and_punctuation_stay_where_the_settings_say_so() -> None:
    assert normalise("Hello,  World!", NormaliserSettings(lowercase=False)) == "Hello World"
    assert normalise("Hello,  World!", NormaliserSettings(punctuation=True)) == "hello, world!"
    assert normalise("It’s 5 €", CASED) == "It's 5 €"
    assert normalise("你好， 世界！ OK", CASED) == "你好,世界! OK"


def test_a_style_has_a_name() -> None:
    assert NormaliserSettings.model_validate("plain") == PLAIN
    assert NormaliserSettings.model_validate("cased_punctuated") == CASED
    assert {frozenset(style) for style in STYLES.values()} == {frozenset(NormaliserSettings.model_fields)}
    with pytest.raises(SettingsError, match=r"'fancy'.*plain or cased_punctuated"):
        build(NormaliserSettings, "fancy", "test")  # type: ignore[arg-type]


LETTERS = st.sampled_from(
    "aZ'’.,<>[]{}/|- \t世界かカ゛ﾞ，。・한e\u0301\u3099\u0301\u064b\u200d\ufe0f\u00adİΣſK👍1２<COMMA>ﷺ"
)


@given(
    st.one_of(st.text(max_size=30), st.text(LETTERS, max_size=20)),
    st.booleans(),
    st.booleans(),
)
@example("İ´a", True, False)
@example("か゛", True, False)
@example("I\u034f\u0307", True, False)
@example("世'界", True, False)
@example("<a<COMMA>b>", False, True)
@example("[[laughter-x]]", True, True)
def test_what_is_normalised_stays_as_it_is(text: str, lowercase: bool, punctuation: bool) -> None:
    settings = NormaliserSettings(lowercase=lowercase, punctuation=punctuation)
    once = normalise(text, settings)
    assert normalise(once, settings) == once
    assert once == " ".join(once.split())
    assert unicodedata.normalize("NFKC", once) == once
    once.encode()  # no lone surrogate is left
