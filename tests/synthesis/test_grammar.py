from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from allears.seeding import generator
from allears.synthesis.grammar import RULES, Language, sentence, units, vocabulary
from allears.synthesis.voicebox import Voicebox
from allears.synthesis.voices import ACCENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

LANGUAGES: tuple[Language, ...] = ("en", "zh", "mixed")


@pytest.fixture(scope="module")
def voicebox() -> Iterator[Voicebox]:
    with Voicebox() as box:
        yield box


def drawn(language: Language, count: int = 3000) -> list[str]:
    return [sentence(language, generator(0, number)) for number in range(count)]


@pytest.mark.parametrize(("language", "least"), [("en", 90), ("zh", 90), ("mixed", 75)])
def test_vocabulary_is_large_and_all_of_it_occurs(language: Language, least: int) -> None:
    words = vocabulary(language)
    counts = Counter(unit for text in drawn(language) for unit in units(text))
    assert len(words) >= least
    assert set(counts) == words
    assert min(counts.values()) >= 10, "a unit too rare to be learnt from two hours"


def test_english_sentences_have_two_to_nine_words() -> None:
    lengths = [len(text.split()) for text in drawn("en")]
    assert min(lengths) == 2
    assert max(lengths) == 9
    assert 5 <= sum(lengths) / len(lengths) <= 7


def test_text_is_clean() -> None:
    for language in LANGUAGES:
        for text in drawn(language, 500):
            assert text == text.strip().lower()
            assert "  " not in text
            assert "".join(units(text)) == text.replace(" ", ""), text


def test_mixed_sentences_mix() -> None:
    both = [any(u.isascii() for u in units(t)) and any(not u.isascii() for u in units(t)) for t in drawn("mixed", 500)]
    assert sum(both) > 450


def test_a_sentence_is_a_function_of_its_generator() -> None:
    assert drawn("en", 50) == drawn("en", 50)
    assert len(set(drawn("en"))) > 1500


def test_every_rule_is_used_and_every_reference_is_a_rule() -> None:
    for language, rules in RULES.items():
        vocabulary(language)  # a KeyError here is a reference to nothing
        for name in rules:
            used = any(f"<{name}>" in alternative for rule in rules.values() for alternative in rule)
            assert used or name == "sentence" or language == "mixed", f"{language}: rule {name} is never used"


@pytest.mark.parametrize("accent", ACCENTS["en"])
def test_no_two_english_words_sound_alike(accent: str, voicebox: Voicebox) -> None:
    sounds = {word: voicebox.phonemes(word, accent).translate({39: None, 44: None}) for word in vocabulary("en")}
    alike = [pair for pair in combinations(sorted(sounds), 2) if sounds[pair[0]] == sounds[pair[1]]]
    assert not alike


def test_no_two_characters_sound_alike_and_each_is_read(voicebox: Voicebox) -> None:
    sounds = {character: voicebox.phonemes(character, "cmn") for character in vocabulary("zh")}
    assert len(set(sounds.values())) == len(sounds)
    for character, sound in sounds.items():
        assert any(digit in sound for digit in "12345"), f"{character} has no tone: {sound}"
        assert "(" not in sound, f"{character} is read in another language: {sound}"
