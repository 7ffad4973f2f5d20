from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allears.errors import SynthesisError
from allears.synthesis.espeak import ESPEAK_RATE
from allears.synthesis.voicebox import Voicebox

if TYPE_CHECKING:
    from collections.abc import Iterator

BREATHY = ("set my alarm at seven thirty", "en-us+f3", 50, 160)


@pytest.fixture(scope="module")
def voicebox() -> Iterator[Voicebox]:
    with Voicebox() as box:
        yield box


def test_speech_is_a_function_of_its_arguments(voicebox: Voicebox) -> None:
    first = voicebox.pcm(*BREATHY, seed=1)
    voicebox.pcm("something else before", "en-gb-scotland+m7", 30, 190, seed=5)
    assert voicebox.pcm(*BREATHY, seed=1) == first
    assert voicebox.pcm(*BREATHY, seed=2) != first, "the seed does not reach espeak"
    with Voicebox() as another:
        assert another.pcm(*BREATHY, seed=1) == first


def test_pitch_and_rate_are_heard(voicebox: Voicebox) -> None:
    text, voice, pitch, rate = BREATHY
    slow, fast = (len(voicebox.pcm(text, voice, pitch, r, 1)) for r in (130, 190))
    assert 1.25 < slow / fast < 1.65
    assert voicebox.pcm(text, voice, 30, rate, 1) != voicebox.pcm(text, voice, 70, rate, 1)


def test_speech_is_loud_enough_and_not_clipped(voicebox: Voicebox) -> None:
    for variant in ("antonio", "Jacky", "f2", "m1", "klatt"):  # espeak turns the first two down at its default volume
        samples = np.frombuffer(
            voicebox.pcm("please open the kitchen window", f"en-us+{variant}", 50, 160, 1), np.int16
        )
        peak = np.abs(samples.astype(np.int32)).max()
        assert 1000 < peak < 25_000, variant
        assert 0.8 < len(samples) / ESPEAK_RATE < 4.0, variant


@pytest.mark.parametrize(
    ("characters", "pinyin"),
    [("打开厨房的灯", "da3 kai1 chu2 fang2 de5 deng1"), ("给妈妈打电话", "gei3 ma1 ma5 da3 dian4 hua4")],
)
def test_characters_are_read_as_their_pinyin(characters: str, pinyin: str, voicebox: Voicebox) -> None:
    def plain(phonemes: str) -> str:
        return phonemes.translate({ord(mark): None for mark in "'_| "})

    assert plain(voicebox.phonemes(characters, "cmn")) == plain(voicebox.phonemes(pinyin, "cmn-latn-pinyin"))


def test_english_in_mandarin_is_read_as_english(voicebox: Voicebox) -> None:
    assert "(en)" in voicebox.phonemes("播放 music", "cmn")


def test_an_unknown_voice_is_named(voicebox: Voicebox) -> None:
    with pytest.raises(SynthesisError, match="no voice 'xx-nowhere'; use one of"):
        voicebox.pcm("hello", "xx-nowhere", 50, 160, 1)


def test_a_text_without_sound_is_named(voicebox: Voicebox) -> None:
    with pytest.raises(SynthesisError, match=r"spoke nothing.*of ''"):
        voicebox.pcm("", "en-us", 50, 160, 1)
    assert voicebox.pcm(*BREATHY, seed=1), "one failure must not end the process"


def test_a_dead_process_is_said() -> None:
    with Voicebox() as box:
        os.kill(box._process.pid, signal.SIGKILL)
        box._process.wait()
        with pytest.raises(SynthesisError, match="ended with status -9"):
            box.pcm(*BREATHY, seed=1)


def lone(code: str) -> str:
    """What a fresh single-threaded interpreter prints: forking is tested there, not beside pytest's threads."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_crashing_child_is_an_error_and_not_a_hang() -> None:
    code = (
        "import os, signal\n"
        "from allears.synthesis.espeak import in_child\n"
        "for make in (lambda: os.kill(os.getpid(), signal.SIGSEGV), lambda: 1 / 0, lambda: b'x' * 200_000):\n"
        "    try: print(len(in_child(make)))\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    crash, error, fine = lone(code).splitlines()
    assert crash.startswith("SynthesisError")
    assert "status -11" in crash
    assert error.startswith("SynthesisError")
    assert "ZeroDivisionError" in error
    assert fine == "200000"


def test_the_forking_process_stays_lean() -> None:
    code = "import sys, allears.synthesis.voicebox; print({'numpy', 'torch', 'soundfile', 'soxr'} & set(sys.modules))"
    assert lone(code) == "set()\n"


def test_a_deep_environment_is_no_obstacle() -> None:
    """espeak-ng keeps 160 bytes of its data path; the wheel may lie deeper."""
    code = (
        "import os, shutil, sys, tempfile, pathlib, espeakng_loader\n"
        "deep = pathlib.Path(tempfile.mkdtemp(), *['a' * 50] * 5); deep.mkdir(parents=True)\n"
        "(deep / 'espeak-ng-data').symlink_to(espeakng_loader.get_data_path())\n"
        "espeakng_loader.get_data_path = lambda: str(deep / 'espeak-ng-data')\n"
        "from allears.synthesis.espeak import Engine, in_child\n"
        "engine = Engine(); print(len(in_child(lambda: engine.pcm('hello', 'en-us', 50, 160, 1))) > 10_000)\n"
        "os.chdir('/'); shutil.rmtree(deep.parents[4])\n"
    )
    assert lone(code) == "True\n"
