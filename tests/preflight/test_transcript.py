"""What is measured of a transcript."""

from __future__ import annotations

import pytest

from allears.preflight.transcript import (
    DAMAGED,
    NO_LETTERS,
    SCRIPTS,
    TWO_SCRIPTS,
    damaged,
    measure,
    of_two_scripts,
)


@pytest.mark.parametrize(
    ("text", "letters", "weight", "script", "marks"),
    [
        ("Turn it OFF, please!", 15, 15, "Latin", 0),
        ("", 0, 0, "none", NO_LETTERS),
        ("... - ?!", 0, 0, "none", NO_LETTERS),
        ("[noise] <UNK>", 0, 0, "none", NO_LETTERS),
        ("42", 2, 2, "none", 0),
        ("打开 wifi", 6, 10, "Latin", 0),
        ("今天天气很好", 6, 18, "Chinese or Japanese", 0),
        ("поставьте будильник", 18, 18, "Cyrillic", 0),
        ("th\u0435 door", 7, 7, "Latin", TWO_SCRIPTS),  # a Cyrillic е
        ("дом house", 8, 8, "Latin", 0),
        ("cafÃ© is open", 12 - 1, 12 - 1, "Latin", DAMAGED),
        ("fish &amp; chips", 12, 12, "Latin", DAMAGED),
        ("a\x00b", 2, 2, "Latin", DAMAGED),
        ("what\ufffd", 4, 4, "Latin", DAMAGED),
        ("안녕하세요", 5, 5, "Hangul", 0),
        ("naïve café", 9, 9, "Latin", 0),
        ("déjà vu – “quoted”", 12, 12, "Latin", 0),
        ("EN “Ø” I HAVET – IRMÃ…", 13, 13, "Latin", 0),
        ("Ð¿Ñ€Ð¸", 6, 6, "Latin", DAMAGED),
        ("PÅ ÅRET ÄR ÅNGSTRÖM", 16, 16, "Latin", 0),
    ],
)
def test_measures(text: str, letters: int, weight: int, script: str, marks: int) -> None:
    found = measure(text)
    assert (found.weight - found.letters, SCRIPTS[found.script], found.marks) == (weight - letters, script, marks)
    if not marks & DAMAGED:
        assert found.letters == letters


def test_what_sounds_alike_has_one_digest() -> None:
    assert measure("Hello, World!").digest == measure("hello  world").digest
    assert measure("hello world").digest != measure("hello word").digest


def test_strange_letters_are_those_of_alphabets_beyond_ascii() -> None:
    assert measure("Straße 打开 안녕 plain").strange == frozenset("ß")
    assert measure("plain").strange == frozenset()


def test_what_is_wrong_is_named() -> None:
    assert damaged("cafÃ© &amp; bar") == ["Ã©", "&amp;"]
    assert of_two_scripts("open th\u0435 door") == ["th\u0435"]
