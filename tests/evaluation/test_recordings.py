from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
import torch

from allears.errors import DataError
from allears.evaluation.recordings import transcribed_files
from allears.evaluation.segments import pieces
from allears.evaluation.transcribe import BatchLimits, Transcript
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from allears.models.ctc import CtcModel

LONE = World(0, 1, 0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = ["low mid high top"] * 5 + ["top low", "high mid"]
    return Tokenizer.train(words, TokenizerSettings(kind="bpe", pieces=16))[0]


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, babble: Callable[[int], CtcModel]) -> CtcModel:
    return babble(tokenizer.size)


def recording(seconds: int, seed: int) -> NDArray[np.int16]:
    """Words of tone, now and then a pause."""
    draw = np.random.default_rng(seed)
    parts: list[NDArray[np.int16]] = []
    time = np.arange(6400) / 16000
    while sum(map(len, parts)) < seconds * 16000:
        wave = np.concatenate([np.sin(2 * np.pi * pitch * time) for pitch in draw.uniform(200, 4000, 5)])
        parts += [(wave * 8000 + draw.normal(0, 200, len(wave))).astype(np.int16), np.zeros(8000, dtype=np.int16)]
    return np.concatenate(parts)[: seconds * 16000]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Short, long, silent, of another rate, missing, no audio, short."""
    folder = tmp_path_factory.mktemp("files")
    soundfile.write(folder / "short.wav", recording(3, 0), 16000)
    soundfile.write(folder / "long.wav", recording(100, 1), 16000)
    soundfile.write(folder / "silent.wav", np.zeros(40_000, dtype=np.int16), 16000)
    soundfile.write(folder / "rate.flac", np.repeat(recording(2, 2), 3), 48000)
    (folder / "text.wav").write_text("no audio")
    soundfile.write(folder / "last.wav", recording(4, 3), 16000)
    names = ("short.wav", "long.wav", "silent.wav", "rate.flac", "missing.wav", "text.wav", "last.wav")
    return [folder / name for name in names]


def same(one: list[Transcript], other: list[Transcript]) -> bool:
    def parts(found: list[Transcript]) -> list[Any]:
        return [(t.problem, [(s.start, s.end, s.text, round(s.confidence, 4)) for s in t.stretches]) for t in found]

    return parts(one) == parts(other)


def test_each_file_is_heard_and_a_bad_one_ends_nothing(
    model: CtcModel, tokenizer: Tokenizer, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = transcribed_files(model, files, tokenizer, LONE, BatchLimits())
    short, long, silent, rate, missing, text, last = found
    assert [len(one.stretches) for one in (short, silent, rate, last)] == [1, 1, 1, 1]
    assert all(one.text and 0 < one.confidence <= 1 for one in (short, long, rate, last))
    assert (silent.text, silent.problem, silent.stretches[0].end) == ("", "", 2.5)
    assert rate.stretches[0].end == 2.0
    assert "missing.wav does not exist" in missing.problem
    assert "text.wav is not audio" in text.problem
    assert (missing.text, missing.confidence) == ("", 0.0)
    said = capsys.readouterr().err
    assert said.count("missing.wav") == said.count("text.wav") == 1
    cuts = [(one.start, one.start + len(one.samples)) for one in pieces([recording(100, 1)])]
    assert [(one.start, one.end) for one in long.stretches] == [
        (round(begin / 16000, 3), round(end / 16000, 3)) for begin, end in cuts
    ]
    assert long.stretches[-1].end == 100.0


def test_files_heard_alone_say_the_same(model: CtcModel, tokenizer: Tokenizer, files: list[Path]) -> None:
    together = transcribed_files(model, files, tokenizer, LONE, BatchLimits())
    alone = [transcribed_files(model, [path], tokenizer, LONE, BatchLimits(utterances=1))[0] for path in files]
    assert same(together, alone)
    assert same(transcribed_files(model, files, tokenizer, LONE, BatchLimits(seconds=31)), together)


@dataclass(frozen=True)
class Pretended(World):
    """One rank after another in one process; the last one hears what all found."""

    gathered: list[Any]

    def gather(self, value: Any) -> list[Any]:
        self.gathered.append(value)
        return [*self.gathered]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_share_the_pieces(model: CtcModel, tokenizer: Tokenizer, files: list[Path], size: int) -> None:
    limits = BatchLimits(seconds=31)
    whole = transcribed_files(model, files, tokenizer, LONE, limits)
    gathered: list[Any] = []
    for rank in range(size):
        world = Pretended(rank, size, rank, size, torch.device("cpu"), gathered)
        found = transcribed_files(model, files, tokenizer, world, limits)
    assert same(found, whole)
    shares = [set(part[0]) for part in gathered]
    assert all(shares)
    assert sum(map(len, shares)) == len(set().union(*shares)) == sum(len(one.stretches) for one in whole)


def test_ranks_that_read_different_audio_say_so(model: CtcModel, tokenizer: Tokenizer, tmp_path: Path) -> None:
    gathered: list[Any] = []
    path = tmp_path / "changing.wav"
    for rank, seconds in enumerate((3, 50)):
        soundfile.write(path, recording(seconds, 0), 16000)
        world = Pretended(rank, 2, rank, 2, torch.device("cpu"), gathered)
        if rank == 0:
            transcribed_files(model, [path], tokenizer, world, BatchLimits())
        else:
            with pytest.raises(DataError, match="different audio"):
                transcribed_files(model, [path], tokenizer, world, BatchLimits())


def test_what_lies_before_the_damage_is_heard(model: CtcModel, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "cut.wav"
    soundfile.write(path, recording(40, 4), 16000)
    path.write_bytes(path.read_bytes()[: 44 + 35 * 32000])
    [found] = transcribed_files(model, [path], tokenizer, LONE, BatchLimits())
    assert "cut.wav is cut off: 35.00 of 40.00 s are there" in found.problem
    assert found.stretches[-1].end == 35.0
    assert found.text


def test_no_files_have_no_transcripts(model: CtcModel, tokenizer: Tokenizer) -> None:
    assert transcribed_files(model, [], tokenizer, LONE, BatchLimits()) == []


MEASURED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from conftest import babbler
from allears.evaluation.recordings import transcribed_files
from allears.evaluation.transcribe import BatchLimits
from allears.text.tokenizer import Tokenizer
from allears.world import start
tokenizer = Tokenizer.load(Path(sys.argv[1]))
model = babbler(tokenizer.size)
[found] = transcribed_files(model, [Path(sys.argv[2])], tokenizer, start(), BatchLimits())
# Not ru_maxrss: a process inherits that from whoever started it.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(len(found.stretches), found.stretches[-1].end, peak)
"""


def test_an_hour_is_heard_in_less_than_a_gigabyte(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    minute = np.repeat(recording(60, 5), 2)  # 32 kHz, so that it is resampled on the way
    with soundfile.SoundFile(tmp_path / "hour.wav", "w", 32000, 1, subtype="PCM_16") as file:
        for _ in range(60):
            file.write(minute)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            MEASURED,
            str(tmp_path / "tokenizer"),
            str(tmp_path / "hour.wav"),
            str(Path(__file__).parent),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    stretches, end, kibibytes = done.stdout.split()
    assert int(stretches) >= 120
    assert float(end) == 3600.0
    assert int(kibibytes) < 1_000_000, f"{kibibytes} KiB"
