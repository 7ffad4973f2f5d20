"""Each kind of broken or odd file is read right, or rejected with its true reason; nothing is printed or crashes."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.audio.odd_files import HAS_AV, ODD, SOUND, Odd, Right, Wrong, encoded, flac_of_unknown_length, mp3, wav

from allears.audio import ffmpeg
from allears.audio.files import AudioFile, read
from allears.errors import AudioError
from allears.shards.prepare import Corpus, prepare
from allears.types import Utterance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

needs_av = pytest.mark.skipif(not HAS_AV, reason="PyAV is not installed (the extra `video`)")
TABLE = [pytest.param(odd, id=odd.name, marks=[needs_av] if odd.needs_av else []) for odd in ODD]
HERE = [odd for odd in ODD if HAS_AV or not odd.needs_av]


def agrees(found: NDArray[np.int16], right: Right) -> None:
    wanted = SOUND if right.wanted is None else right.wanted
    assert abs(len(found) - len(wanted)) <= right.longer
    if right.like is None:
        worst = np.abs(found.astype(np.int32) - wanted).max()
        assert worst <= right.step
        return
    middle = slice(len(wanted) // 4, len(wanted) * 3 // 4)
    moved = (found[middle.start + delay : middle.stop + delay] for delay in range(-right.delay, right.delay + 1))
    best = max(np.corrcoef(wanted[middle], part)[0, 1] for part in moved if len(part) == len(wanted) // 2)
    assert best >= right.like


def test_there_are_more_than_sixty_kinds() -> None:
    assert len({odd.name for odd in ODD}) == len(ODD) >= 60


@pytest.mark.parametrize("odd", TABLE)
def test_an_odd_file(odd: Odd, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{odd.name}.mp3"  # the name's end says nothing
    path.write_bytes(odd.build())
    outcome = odd.outcome
    if isinstance(outcome, Right):
        agrees(read(str(path)), outcome)
    else:
        with pytest.raises(AudioError) as caught:
            read(str(path))
        told = str(caught.value)
        assert (caught.value.reason, told.startswith(str(path)), told.endswith(".")) == (outcome.reason, True, True)
        assert outcome.words in told
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("odd", TABLE)
def test_an_odd_file_in_memory_is_the_same(odd: Odd, tmp_path: Path) -> None:
    data = odd.build()
    (tmp_path / odd.name).write_bytes(data)
    path = str(tmp_path / odd.name)
    assert outcome_of(path, io.BytesIO(data)) == outcome_of(path, data) == outcome_of(path)


def outcome_of(path: str, source: Any = None) -> object:
    """The samples' bytes, or the reason and the sentence."""
    try:
        with AudioFile(path, source) as file:
            return file.read().tobytes()
    except AudioError as error:
        return error.reason, str(error)


def test_all_of_them_are_one_corpus(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    utterances = []
    for odd in HERE:
        (tmp_path / odd.name).write_bytes(odd.build())
        utterances.append(Utterance(odd.name, str(tmp_path / odd.name), "words"))
    summary = prepare(Corpus(tmp_path, "manifest", utterances, []), tmp_path / "out", processes=2)
    lines = (tmp_path / "out" / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
    rejected = {line["id"]: line["reason"] for line in map(json.loads, lines)}
    assert rejected == {odd.name: odd.outcome.reason for odd in HERE if isinstance(odd.outcome, Wrong)}
    assert summary.utterances == len(HERE) - len(rejected)
    assert "warning" not in capfd.readouterr().err.lower()


MADE: dict[str, Callable[[], bytes]] = {
    "wav": wav,
    "mp3": mp3,
    "flac of unknown length": flac_of_unknown_length,
    "stereo wav with a dead channel": lambda: wav(samples=np.stack([0 * SOUND, SOUND], axis=1)),
}
BY_AV: dict[str, Callable[[], bytes]] = {
    "m4a": lambda: encoded("ipod", "aac", 16_000),
    "webm": lambda: encoded("webm", "libopus", 48_000),
}


@pytest.mark.parametrize("name", [*MADE, *(pytest.param(name, marks=needs_av) for name in BY_AV)])
def test_segments_of_any_decoder_in_any_order(name: str) -> None:
    data = (MADE | BY_AV)[name]()
    with AudioFile("it", data) as file:
        whole = file.read()
    with AudioFile("it", data) as file:
        for first, last in [(0.5, 0.75), (0.25, 0.5), (0.5, 0.75), (0.0, 0.125), (0.75, 1.0)]:
            found = file.read(first, last - first)
            wanted = whole[round(first * 16_000) : round(first * 16_000) + len(found)]
            assert len(found) >= 0.125 * 16_000
            inner = slice(0, len(found)) if file.rate == 16_000 else slice(200, len(found) - 200)  # resampled at edges
            np.testing.assert_allclose(found[inner], wanted[inner], atol=0 if file.rate == 16_000 else 60)
        for start, duration in [(0.9, 0.6), (1.5, None), (2.0, 0.1)]:
            with pytest.raises(AudioError, match="lies outside") as caught:
                file.read(start, duration)
            assert caught.value.reason == "segment outside the file"
        np.testing.assert_array_equal(file.read(), whole)
        np.testing.assert_array_equal(np.concatenate(list(file.blocks())), whole)


def test_a_segment_in_the_part_that_was_cut_off_says_so(tmp_path: Path) -> None:
    data = wav()
    (tmp_path / "a.wav").write_bytes(data[: len(data) // 2])
    assert len(read(str(tmp_path / "a.wav"), 0.1, 0.2)) == 3200
    with pytest.raises(AudioError, match=r"cut off: 0\.50 of 1\.00 s") as caught:
        read(str(tmp_path / "a.wav"), 0.7, 0.2)
    assert caught.value.reason == "unreadable"


@needs_av
def test_without_pyav_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded("ipod", "aac", 16_000)
    monkeypatch.setattr(ffmpeg, "is_installed", lambda: False)
    with pytest.raises(AudioError, match=r"talk\.m4a is MP4 .* needs PyAV; install PyAV.*allears\[video\]"):
        AudioFile("talk.m4a", data)


@needs_av
def test_a_playlist_behind_junk_opens_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "other.wav").write_bytes(wav())
    (tmp_path / "list.m3u8").write_bytes(b"#EXTM3U\n\x01\n#EXTINF:1,\nother.wav\n#EXT-X-ENDLIST\n")
    with pytest.raises(AudioError, match="not audio"):
        read(str(tmp_path / "list.m3u8"))


def test_one_channel_is_asked_for() -> None:
    with AudioFile("it", wav(samples=np.stack([0 * SOUND, SOUND, -SOUND], axis=1))) as file:
        np.testing.assert_array_equal(file.read(0.25, 0.5, 1), SOUND[4_000:12_000])
        np.testing.assert_array_equal(file.read(channel=2), -SOUND)
        with pytest.raises(AudioError, match=r"^it: all samples are 0\.$"):
            file.read(channel=0)
        with pytest.raises(AudioError, match="no channel 3: it has 3, counted from 0"):
            file.read(channel=3)


def test_dead_channels_are_judged_by_the_whole_file() -> None:
    late = np.where(np.arange(len(SOUND)) > 12_000, SOUND, 0).astype(np.int16)  # digital silence, then speech
    with AudioFile("it", wav(samples=np.stack([SOUND, late], axis=1))) as file:
        np.testing.assert_allclose(file.read(0.0, 0.5), SOUND[:8_000] / 2, atol=0.51)
