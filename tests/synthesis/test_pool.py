from __future__ import annotations

import sys
from dataclasses import asdict

import numpy as np
import psutil
import pytest

from allears.errors import SynthesisError
from allears.synthesis.pool import Pool, phonemes, speak
from allears.synthesis.recording import Order
from allears.synthesis.voices import Speaker

SPEAKER = Speaker("someone", "en-gb-x-rp", "f5", 50, 160, 1)


def asked(text: str) -> dict[str, object]:
    return {"speak": asdict(Order("", text, SPEAKER))}


def test_speak_is_a_function_of_its_arguments() -> None:
    first = speak("turn on the lamp", SPEAKER)
    assert first.dtype == np.int16
    assert 0.5 * 16_000 < len(first) < 3 * 16_000
    assert np.array_equal(first, speak("turn on the lamp", SPEAKER))


def test_phonemes() -> None:
    assert phonemes("seven", "en-us") == "s'Ev@n"


def test_every_message_is_answered_once_whoever_answers() -> None:
    messages = [{"phonemes": [word, "en-us"]} for word in ("one", "two", "three", "four", "five", "six", "seven")]
    with Pool(1) as one, Pool(3) as three:
        alone = list(one.answers(messages))
        together = dict(three.answers(messages))
    assert [place for place, _ in alone] == list(range(7))
    assert together == dict(alone)


def test_an_error_of_a_worker_arrives_as_its_sentence() -> None:
    with Pool(2) as pool, pytest.raises(SynthesisError, match="no voice 'nowhere'"):
        list(pool.answers([{"phonemes": ["one", "en-us"]}, {"phonemes": ["two", "nowhere"]}]))


def test_a_killed_worker_is_said_and_none_is_left() -> None:
    me = psutil.Process()
    before = set(me.children(recursive=True))
    with Pool(2) as pool:
        answers = pool.answers([asked(f"wait {n} minutes") for n in ("two", "three", "four") * 20])
        next(answers)
        next(child for child in me.children() if child not in before).kill()
        with pytest.raises(SynthesisError, match=r"ended with status -9.*run the same command again"):
            list(answers)
    assert set(me.children(recursive=True)) == before


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(SynthesisError, match=r"pip install 'allears\[synth\]'"):
        Pool(1)
