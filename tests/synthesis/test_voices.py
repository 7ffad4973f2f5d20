from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import espeakng_loader
import pytest

from allears.synthesis.voicebox import Voicebox
from allears.synthesis.voices import (
    ACCENTS,
    OTHERS_LEFT_OUT,
    PITCHES,
    RATES,
    TEST_VARIANTS,
    TRAIN_VARIANTS,
    UNINTELLIGIBLE,
    speakers,
)

if TYPE_CHECKING:
    from allears.synthesis.grammar import Language, Split


def test_training_and_test_share_no_variant() -> None:
    assert len(TEST_VARIANTS) >= 12
    assert not set(TEST_VARIANTS) & set(TRAIN_VARIANTS)


def test_every_variant_of_the_wheel_is_used_or_left_out_with_a_reason() -> None:
    there = {path.name for path in (Path(espeakng_loader.get_data_path()) / "voices" / "!v").iterdir()}
    lists = [*TRAIN_VARIANTS, *TEST_VARIANTS, *UNINTELLIGIBLE, *OTHERS_LEFT_OUT]
    assert sorted(lists) == sorted(there)


def test_every_voice_is_a_voice_of_its_own() -> None:
    """espeak-ng takes the plain voice, without a word, for a variant that it does not know."""
    with Voicebox() as box:
        spoken = {v: box.pcm("open the door", f"en-us+{v}", 50, 160, 1) for v in (*TRAIN_VARIANTS, *TEST_VARIANTS)}
        spoken[""] = box.pcm("open the door", "en-us", 50, 160, 1)
        accents = {accent: box.phonemes("thirty concerts on tuesday", accent) for accent in ACCENTS["en"]}
        sounds = {accent: box.pcm("thirty concerts on tuesday", accent, 50, 160, 1) for accent in accents}
    assert len(set(spoken.values())) == len(spoken)
    assert len(set(sounds.values())) == len(ACCENTS["en"])


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_speakers_are_drawn_by_key(split: Split, language: Language) -> None:
    people = speakers(split, language, 100, seed=3)
    assert people == speakers(split, language, 100, seed=3)
    assert people != speakers(split, language, 100, seed=4)
    assert people[:50] == speakers(split, language, 50, seed=3)
    assert len({speaker.name for speaker in people}) == 100
    assert {speaker.accent for speaker in people} == set(ACCENTS[language])
    assert {speaker.variant for speaker in people} == set(TEST_VARIANTS if split == "test" else TRAIN_VARIANTS)
    assert all(PITCHES[0] <= speaker.pitch <= PITCHES[1] and RATES[0] <= speaker.rate <= RATES[1] for speaker in people)
    assert len({(speaker.pitch, speaker.rate) for speaker in people}) > 80
