"""``allears prepare`` as a person starts it: bad input, kills, what is printed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import soundfile

from allears.manifest.index import Index

REAL = Path(__file__).parents[2].parent / "shared" / "data"
COMMAND = (sys.executable, "-m", "allears", "prepare")


def sound(path: Path, seconds: float = 1.0, seed: int = 0) -> None:
    samples = np.random.default_rng(seed).normal(0, 2000, round(seconds * 16_000)).astype(np.int16)
    soundfile.write(path, samples, 16_000)


def prepare(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120, cwd=cwd
    )


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one error sentence of a command that failed."""
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert last.endswith(".")
    return last


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def test_a_corpus_as_it_comes(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "folder.wav").mkdir(parents=True)
    for seed, name in enumerate(["a.wav", "b.wav", "c.wav"]):
        sound(corpus / name, seed=seed)
    (corpus / "zero.wav").touch()
    (corpus / "text.mp3").write_text("this is a text\n" * 50)
    lines = [
        "\ufeffa.wav\tone",
        "b.wav\ttwo\twith a tab",
        "a.wav\tone again",
        "c.wav\t ",
        "none.wav\tthree",
        "zero.wav\tfour",
        "text.mp3\tfive",
        "folder.wav\tsix",
        "no tab",
    ]
    (corpus / "corpus.tsv").write_text("\r\n".join(lines), newline="")
    done = prepare(corpus, tmp_path / "d", "--language", "en", "--split", "train", "--json", "--processes", 2)
    found = result(done)
    assert (found["utterances"], found["rejected"]) == (2, 7)
    assert found["hours"] == pytest.approx(2 / 3600, abs=1e-6)
    assert found["rejected_by_reason"] == {
        "bad line": 1,
        "duplicate id": 1,
        "no text": 1,
        "missing file": 1,
        "unreadable": 2,
        "empty": 1,
    }
    index = Index.open(tmp_path / "d")
    assert [(index.text(i), index.language(i), index.split(i)) for i in range(2)] == [
        ("one", "en", "train"),
        ("two with a tab", "en", "train"),
    ]
    assert "layout pairs" in done.stderr
    assert "corpus.tsv" in done.stderr
    assert "mpg123" not in done.stderr
    assert "Rejected 7, all listed in" in done.stdout
    assert f"1  missing file; for example: {corpus / 'none.wav'} does not exist." in done.stdout
    assert len((tmp_path / "d" / "rejected.jsonl").read_text().splitlines()) == 7
    again = prepare(corpus, tmp_path / "d", "--language", "en", "--split", "train", "--json")
    assert result(again) == found | {"already": True}
    assert "nothing to do" in again.stderr


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    assert "does not exist" in sentence(prepare(tmp_path / "none", tmp_path / "d"))
    (tmp_path / "corpus").mkdir()
    assert "--layout NAME" in sentence(prepare(tmp_path / "corpus", tmp_path / "d"))
    (tmp_path / "corpus" / "x.tsv").write_text("none.wav\tone\n")
    assert "missing file 1" in sentence(prepare(tmp_path / "corpus", tmp_path / "d"))
    assert (tmp_path / "d" / "rejected.jsonl").read_text().count("missing file") == 1
    sound(tmp_path / "corpus" / "none.wav")
    assert "over the corpus" in sentence(prepare(tmp_path / "corpus", tmp_path / "corpus"))
    assert result(prepare(tmp_path / "corpus", tmp_path / "d", "--json"))["utterances"] == 1
    (tmp_path / "corpus" / "x.tsv").write_text("none.wav\ttwo\n")
    assert "--overwrite" in sentence(prepare(tmp_path / "corpus", tmp_path / "d"))
    assert result(prepare(tmp_path / "corpus", tmp_path / "d", "--overwrite", "--json"))["utterances"] == 1
    assert Index.open(tmp_path / "d").text(0) == "two"


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def survivors(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still live after five seconds; a zombie that nobody collects is dead."""

    def lives(one: psutil.Process) -> bool:
        try:
            return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    end = time.monotonic() + 5
    while (alive := [one for one in processes if lives(one)]) and time.monotonic() < end:
        time.sleep(0.05)
    return alive


def test_killed_at_random_moments_the_bytes_are_the_same(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    records = []
    for i in range(60):
        sound(corpus / f"{i}.wav", seconds=60, seed=i)
        records.append(json.dumps({"audio_filepath": f"{i}.wav", "text": f"text {i}", "duration": 60.0}))
    records.append(json.dumps({"audio_filepath": "none.wav", "text": "x", "duration": 1.0}))
    (corpus / "corpus.json").write_text("\n".join(records))
    began = time.monotonic()
    assert result(prepare(corpus, tmp_path / "whole", "--processes", 2, "--json"))["shards"] == 30
    seconds = time.monotonic() - began
    draw = random.Random(7)
    before_the_end = 0
    for processes in (2, 1, 3, 2):
        arguments = [*COMMAND, str(corpus), str(tmp_path / "killed"), "--processes", str(processes)]
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(draw.uniform(0.4, 0.8) * seconds)
            workers = descendants(process.pid)
            before_the_end += process.poll() is None
            process.kill()
        assert not survivors(workers)
    assert before_the_end
    result(prepare(corpus, tmp_path / "killed", "--processes", 1, "--json"))
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.parametrize("pause", [0.0, 0.1, 1.0])
def test_control_c_ends_all_workers_without_a_word(tmp_path: Path, pause: float) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    sound(corpus / "a.wav", seconds=600)
    (corpus / "c.json").write_text(
        "\n".join(json.dumps({"audio_filepath": "a.wav", "text": "x", "offset": i / 10}) for i in range(2000))
    )
    arguments = [*COMMAND, str(corpus), str(tmp_path / "d")]
    with subprocess.Popen(
        ["env", "--default-signal=INT", *arguments],  # whoever runs the tests in the background ignores Ctrl-C
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not (workers := descendants(process.pid)):
            time.sleep(0.05)
        time.sleep(pause)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not survivors(workers)


def test_help_has_an_example() -> None:
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert "Example: allears prepare corpus dataset" in done.stdout


def test_the_command_loads_nothing_heavy() -> None:
    code = "import sys, allears.cli.prepare; print({'torch','numpy','soundfile','h5py'} & set(sys.modules) or '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.skipif(not REAL.is_dir(), reason="the folder of real speech is not beside the repository")
def test_kaldi_folders_of_real_speech(tmp_path: Path) -> None:
    done = prepare(REAL / "speechocean", tmp_path / "d", "--encoding", "flac", "--json")
    found = result(done)
    assert (found["utterances"], found["rejected"], found["encoding"]) == (800, 0, "flac")
    assert found["splits"] == {"test": 200, "train": 600}
    assert f"start at {REAL / 'speechocean'}" in done.stderr.replace("\n", "")
    assert Index.open(tmp_path / "d").rows("test") == range(200)


def test_transcripts_alone_are_changed(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for seed, name in enumerate(["a.wav", "b.wav"]):
        sound(corpus / name, seed=seed)
    (corpus / "corpus.tsv").write_text("a.wav\tone\nb.wav\ttwo\n")
    result(prepare(corpus, tmp_path / "d", "--json", "--processes", 1))
    shards = contents(tmp_path / "d" / "shards")
    (tmp_path / "new").write_text("b\tthree\nnone\tfour\n")
    done = prepare("--texts", tmp_path / "new", tmp_path / "d", "--json")
    assert result(done) == {"utterances": 2, "changed": 1, "unknown": 1, "dataset": str(tmp_path / "d")}
    assert "not in the dataset: 1, such as 'none'" in done.stderr
    assert [Index.open(tmp_path / "d").text(i) for i in range(2)] == ["one", "three"]
    assert contents(tmp_path / "d" / "shards") == shards
    assert "folder of the dataset too" in sentence(prepare(corpus))
