from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allears.text.normalise import NormaliserSettings, normalise

PLAIN = NormaliserSettings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello,  World!", "hello world"),
        ("  DON’T ‘go’ \n", "don't 'go'"),
        ("well-known… 50 %", "well known 50"),
        ("ｆｕｌｌ　ｗｉｄｔｈ２", "full width2"),
        ("你好，世界。", "你好 世界"),
        ("cafe\u0301", "caf\u00e9"),
        ("ﬁne", "fine"),
        ("हिन्दी", "हिन्दी"),
        ("?!…", ""),
        ("", ""),
    ],
)
def test_case_punctuation_and_forms_of_the_same_letter_go(text: str, expected: str) -> None:
    assert normalise(text, PLAIN) == expected


def test_case_and_punctuation_stay_where_the_settings_say_so() -> None:
    assert normalise("Hello,  World!", NormaliserSettings(lowercase=False)) == "Hello World"
    assert normalise("Hello,  World!", NormaliserSettings(punctuation=True)) == "hello, world!"
    assert normalise("It’s", NormaliserSettings(lowercase=False, punctuation=True)) == "It's"


@given(st.text(max_size=30), st.booleans(), st.booleans())
@example("İ´a", True, False)
def test_what_is_normalised_stays_as_it_is(text: str, lowercase: bool, punctuation: bool) -> None:
    settings = NormaliserSettings(lowercase=lowercase, punctuation=punctuation)
    once = normalise(text, settings)
    assert normalise(once, settings) == once
    assert once == " ".join(once.split())
