"""From utterances to a dataset: contents, rejections, resuming, refusing."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import soundfile

from allears.audio.decode import decode
from allears.audio.files import read
from allears.errors import DataError, DatasetError
from allears.manifest import manifest
from allears.manifest.index import Encoding, Index
from allears.shards import pool
from allears.shards.prepare import Corpus, prepare
from allears.shards.read import ShardReader
from allears.shards.report import REASONS
from allears.types import Rejection, Utterance

if TYPE_CHECKING:
    from collections.abc import Iterator


def sound(path: Path, seconds: float, rate: int = 16_000, seed: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(seed).normal(0, 2000, round(seconds * rate)).astype(np.int16)
    soundfile.write(path, samples, rate)
    return str(path)


def corpus(folder: Path, count: int = 12, seconds: float = 60.0) -> Corpus:
    """Twelve utterances in five shards, at two rates."""
    utterances = [
        Utterance(
            f"u{i:02d}",
            sound(folder / f"{i}.wav", seconds + i / 10, rate=(16_000, 8_000)[i % 2], seed=i),
            f"text {i}",
            speaker=f"s{i % 3}",
            language="en",
            split="test" if i % 4 == 0 else "train",
            extra={"number": i},
        )
        for i in range(count)
    ]
    return Corpus(folder, "pairs", utterances, [])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def made(small: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "dataset"
    prepare(small, out, processes=2)
    return out


@pytest.mark.parametrize("encoding", ["pcm16", "flac"])
def test_what_goes_in_comes_out(small: Corpus, tmp_path: Path, encoding: Encoding) -> None:
    summary = prepare(small, tmp_path / "d", encoding=encoding, processes=2)
    index = Index.open(tmp_path / "d")
    reader = ShardReader(index)
    assert (summary.utterances, len(index), index.encoding) == (12, 12, encoding)
    assert len(index.shards) >= 4
    for i, one in enumerate(small.utterances):
        wanted = read(one.audio)
        np.testing.assert_array_equal(decode(reader.segment(i)), wanted)
        assert (index.id(i), index.text(i), index.samples[i]) == (one.id, one.text, len(wanted))
        assert (index.speaker(i), index.language(i), index.split(i)) == (one.speaker, one.language, one.split)
    found = list(manifest.read(tmp_path / "d" / manifest.NAME))
    assert [(one.id, one.duration) for one in found] == [
        (index.id(i), round(int(index.samples[i]) / 16_000, 6)) for i in range(12)
    ]
    assert found[3].extra == {"number": 3}


def test_anyone_can_slice_a_shard_with_h5py(made: Path) -> None:
    index = Index.open(made)
    reader = ShardReader(index)
    for number, shard in enumerate(index.shards):
        with h5py.File(made / shard.name) as file:
            offsets, ids = file["offsets"][:], file["ids"].asstr()[:]
            assert file["audio"].dtype == np.int16
            assert file["audio"].chunks is None
            for place, i in enumerate(np.flatnonzero(index.shard == number)):
                assert ids[place] == index.id(int(i))
                samples = file["audio"][offsets[place] : offsets[place + 1]]
                np.testing.assert_array_equal(samples, decode(reader.segment(int(i))))


def test_the_report(made: Path, small: Corpus) -> None:
    report = json.loads((made / "report.json").read_text())
    assert (report["utterances"], report["speakers"], report["layout"]) == (12, 3, "pairs")
    assert report["source_rates"] == {"8000": 6, "16000": 6}
    assert {name: part["utterances"] for name, part in report["splits"].items()} == {"test": 3, "train": 9}
    seconds = sum(len(read(one.audio)) for one in small.utterances) / 16_000
    assert report["hours"] == pytest.approx(seconds / 3600, abs=1e-6)
    assert not (made / ".work").exists()


@pytest.mark.parametrize("processes", [1, 3])
def test_the_number_of_processes_does_not_matter(small: Corpus, made: Path, tmp_path: Path, processes: int) -> None:
    prepare(small, tmp_path / "d", processes=processes)
    assert contents(tmp_path / "d") == contents(made)


def test_finished_shards_are_taken_over(
    small: Corpus, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "d"
    original = pool.run

    def stop(*how: Any) -> Iterator[Any]:
        for number, message in enumerate(original(*how)):
            if number == 3:
                raise KeyboardInterrupt
            yield message

    with monkeypatch.context() as patch:
        patch.setattr(pool, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare(small, out, processes=1)
    finished = sorted((out / ".work").glob("0*.json"))
    assert 0 < len(finished) < 4
    with pytest.raises(DatasetError, match="incomplete"):
        Index.open(out)
    shard = out / "shards" / "00000.h5"
    before = shard.stat().st_mtime_ns
    (out / "shards" / "00003.h5.partial").write_bytes(b"half a shard")
    prepare(small, out, processes=2)
    assert shard.stat().st_mtime_ns == before
    assert contents(out) == contents(made)


def test_a_complete_dataset_is_left_alone(small: Corpus, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "d")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "d").rglob("*")}
    (tmp_path / "d" / ".work").mkdir()  # killed at the last moment
    summary = prepare(small, tmp_path / "d")
    assert summary.already
    assert summary.utterances == 12
    assert not (tmp_path / "d" / ".work").exists()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "d").rglob("*")} == before


def test_another_corpus_is_refused_and_overwritten_when_asked(small: Corpus, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "d")
    other = Corpus(small.path, small.layout, small.utterances[:5], [])
    with pytest.raises(DatasetError, match=r"of another corpus.*--overwrite"):
        prepare(other, tmp_path / "d")
    with pytest.raises(DatasetError, match="--overwrite"):
        prepare(small, tmp_path / "d", encoding="flac")
    assert contents(tmp_path / "d") == contents(made)
    (tmp_path / "d" / "validation").mkdir()  # of what is about to go
    assert prepare(other, tmp_path / "d", overwrite=True).utterances == 5
    assert not (tmp_path / "d" / "validation").exists()
    prepare(other, tmp_path / "fresh")
    assert contents(tmp_path / "d") == contents(tmp_path / "fresh")


def test_a_damaged_dataset_is_not_called_complete(small: Corpus, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "d")
    (tmp_path / "d" / "shards" / "00001.h5").unlink()
    with pytest.raises(DatasetError, match=r"shards/00001\.h5.*--overwrite"):
        prepare(small, tmp_path / "d")


def test_folders_of_something_else_are_refused(small: Corpus, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").touch()
    for overwrite in (False, True):
        with pytest.raises(DatasetError, match=r"not a dataset \(it has letter.txt\)"):
            prepare(small, tmp_path / "home", overwrite=overwrite)
    with pytest.raises(DatasetError, match="is a file"):
        prepare(small, tmp_path / "home" / "letter.txt")
    for out in (small.path, small.path.parent):
        with pytest.raises(DatasetError, match="over the corpus"):
            prepare(small, out, overwrite=True)
    assert [one.name for one in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_one_preparation_at_a_time(small: Corpus, tmp_path: Path) -> None:
    from allears import files

    with files.locked(tmp_path / "d", "preparing a dataset"), pytest.raises(DataError, match="in use"):
        prepare(small, tmp_path / "d")


class _Killed(BaseException):
    """As SIGKILL: nothing that changes the disk happens any more."""


def kill_before(change: int, patch: pytest.MonkeyPatch) -> list[str]:
    """Let the ``change``-th change of the file system by this process, and all later ones, not happen."""
    seen: list[str] = []

    def counted(original: Any) -> Any:
        def changed(path: Path, *arguments: Any, **named: Any) -> Any:
            seen.append(f"{original.__name__} {Path(path).name}")
            if len(seen) > change:
                raise _Killed
            return original(path, *arguments, **named)

        return changed

    for name in ("replace", "unlink", "mkdir"):
        patch.setattr(Path, name, counted(getattr(Path, name)))
    patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    return seen


@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_before_any_change_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool) -> None:
    first, second = corpus(tmp_path / "c", 2, 0.5), corpus(tmp_path / "o", 3, 0.5)
    prepare(first, tmp_path / "wanted", processes=1)
    if overwrite:
        prepare(second, tmp_path / "before", processes=1)

    def here(function: Any, tasks: Any, *_: Any) -> Iterator[Any]:
        """Workers in this process, so that what they change counts too."""
        return ((place, message) for place, task in enumerate(tasks) for message in function(task))

    monkeypatch.setattr(pool, "run", here)
    for change in range(100):
        out = tmp_path / f"d{change}"
        if overwrite:
            shutil.copytree(tmp_path / "before", out)
        with monkeypatch.context() as patch:
            seen = kill_before(change, patch)
            try:
                prepare(first, out, processes=1, overwrite=overwrite)
                break
            except _Killed:
                pass
        prepare(first, out, processes=1, overwrite=overwrite)
        assert contents(out) == contents(tmp_path / "wanted"), seen
        shutil.rmtree(out)
    assert 12 < change < 100


def bad_corpus(folder: Path) -> Corpus:
    good = sound(folder / "good.wav", 1.0)
    (folder / "zero.wav").touch()
    (folder / "text.wav").write_text("hello\n")
    (folder / "folder.wav").mkdir()
    soundfile.write(folder / "silent.wav", np.zeros(16_000, dtype=np.int16), 16_000)
    places = {
        "good": (good, 0.0, None, "one"),
        "first half": (good, 0.0, 0.5, "two"),
        "second half": (good, 0.5, 0.5, "three"),
        "missing": (str(folder / "none.wav"), 0.0, None, "x"),
        "zero": (str(folder / "zero.wav"), 0.0, None, "x"),
        "text": (str(folder / "text.wav"), 0.0, None, "x"),
        "folder": (str(folder / "folder.wav"), 0.0, None, "x"),
        "silent": (str(folder / "silent.wav"), 0.0, None, "x"),
        "short": (good, 0.0, 0.05, "x"),
        "outside": (good, 0.9, 0.5, "x"),
        "before": (good, -0.5, 0.6, "x"),
        "no text": (good, 0.0, None, " "),
    }
    utterances = [Utterance(name, audio, text, start, length) for name, (audio, start, length, text) in places.items()]
    rejections = [Rejection("x.tsv:7", "bad line", "x.tsv, line 7."), Rejection("k", "command not run", "A command.")]
    return Corpus(folder, "pairs", [*utterances, Utterance("good", good, "again")], rejections)


@pytest.mark.case("NeMo #8568")
@pytest.mark.case("lhotse #1541")
def test_every_reason_is_listed_and_counted(tmp_path: Path) -> None:
    summary = prepare(bad_corpus(tmp_path / "c"), tmp_path / "d", processes=2)
    index = Index.open(tmp_path / "d")
    assert [index.id(i) for i in range(len(index))] == ["good", "first half", "second half"]
    whole = decode(ShardReader(index).segment(0))
    np.testing.assert_array_equal(decode(ShardReader(index).segment(2)), whole[8_000:])
    lines = [json.loads(line) for line in (tmp_path / "d" / "rejected.jsonl").read_text().splitlines()]
    assert {one["id"]: one["reason"] for one in lines} == {
        "x.tsv:7": "bad line",
        "k": "command not run",
        "no text": "no text",
        "good": "duplicate id",
        "missing": "missing file",
        "zero": "empty",
        "text": "unreadable",
        "folder": "unreadable",
        "silent": "digitally silent",
        "short": "too short",
        "outside": "segment outside the file",
        "before": "segment outside the file",
    }
    assert sum(summary.rejected.values()) == len(lines)
    assert summary.rejected["unreadable"] == 2
    assert set(summary.rejected) == set(REASONS)


def test_nothing_left_is_an_error_that_counts(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    missing = [Utterance(f"u{i}", str(tmp_path / "c" / f"{i}.wav"), "x") for i in range(3)]
    wrong = Corpus(tmp_path / "c", "pairs", missing, [Rejection("x:1", "bad line", "Line 1.")])
    for _ in range(2):  # the second time finds the list of the first, and is no other corpus
        with pytest.raises(DatasetError, match=r"\(bad line 1, missing file 3\)"):
            prepare(wrong, tmp_path / "d")
        assert {one.name for one in (tmp_path / "d").iterdir()} == {".lock", "rejected.jsonl"}
        assert len((tmp_path / "d" / "rejected.jsonl").read_text().splitlines()) == 4
    sound(tmp_path / "c" / "0.wav", 1.0)
    assert prepare(wrong, tmp_path / "d").utterances == 1
    with pytest.raises(DatasetError, match="it has none"):
        prepare(Corpus(tmp_path / "c", "pairs", [], []), tmp_path / "e")


def test_preparing_a_prepared_dataset_gives_the_same_audio(made: Path, tmp_path: Path) -> None:
    utterances = list(manifest.read(made / manifest.NAME))
    prepare(Corpus(made / manifest.NAME, "manifest", utterances, []), tmp_path / "d")
    first, second = Index.open(made), Index.open(tmp_path / "d")
    assert first.samples.tolist() == second.samples.tolist()
    readers = ShardReader(first), ShardReader(second)
    assert all(readers[0].segment(i) == readers[1].segment(i) for i in range(len(first)))


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders that end their process at files which say how; see `pool_tasks.fragile`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr("allears.shards.prepare.write_shard", importlib.import_module("pool_tasks").fragile)


def sounds(folder: Path, *names: str) -> Corpus:
    """A corpus of a file for each name, all with the same sound, and two utterances in each."""
    utterances = []
    for name in names:
        path = sound(folder / f"{name}.wav", 1.0)
        utterances += [Utterance(f"{name}-{part}", path, "text", part / 2, 0.5) for part in range(2)]
    return Corpus(folder, "pairs", utterances, [])


@pytest.mark.usefixtures("fragile")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_file_that_ends_its_process_is_rejected_and_the_others_are_prepared(tmp_path: Path, processes: int) -> None:
    guilty = {
        "SIGSEGV": "its decoder crashed (SIGSEGV)",
        "SIGABRT": "its decoder crashed (SIGABRT)",
        "null": "its decoder crashed (SIGSEGV)",
        "exit": "its decoder ended the process with code 3",
        "SIGKILL": "killed twice (SIGKILL), usually because memory ran out",
    }
    corpus = sounds(tmp_path / "c", "a", *guilty, "b", "once")
    summary = prepare(corpus, tmp_path / "d", processes=processes)
    assert [one.id for one in manifest.read(tmp_path / "d" / manifest.NAME)] == [
        "a-0",
        "a-1",
        "b-0",
        "b-1",
        "once-0",
        "once-1",
    ]
    assert summary.rejected == {"unreadable": 2 * len(guilty)}
    lines = (tmp_path / "d" / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
    told = {line["id"]: line["detail"] for line in map(json.loads, lines)}
    for name, words in guilty.items():
        for part in range(2):
            assert words in told[f"{name}-{part}"]
            assert f"{name}.wav" in told[f"{name}-{part}"]


@pytest.mark.usefixtures("fragile")
def test_a_process_that_somebody_ends_ends_the_preparation(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="ended by SIGTERM"):
        prepare(sounds(tmp_path / "c", "a", "SIGTERM"), tmp_path / "d", processes=1)


@pytest.mark.usefixtures("fragile")
def test_what_crashes_decoders_leaves_the_bytes_of_the_others_alone(tmp_path: Path) -> None:
    prepare(sounds(tmp_path / "c", "a", "SIGSEGV", "b"), tmp_path / "d", processes=1)
    shard = (tmp_path / "d" / "shards" / "00000.h5").read_bytes()
    (tmp_path / "c" / "SIGSEGV.wav").write_bytes(b"no audio")
    prepare(sounds(tmp_path / "e", "a", "b"), tmp_path / "f", processes=1)
    assert shard == (tmp_path / "f" / "shards" / "00000.h5").read_bytes()
