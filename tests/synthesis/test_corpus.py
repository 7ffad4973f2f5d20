from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from allears.errors import DataError, SettingsError, SynthesisError
from allears.files import digest, locked
from allears.synthesis.corpus import COLUMNS, METADATA, Settings, planned, synthesize
from allears.synthesis.voices import TEST_VARIANTS, TRAIN_VARIANTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allears.synthesis.grammar import Language, Split

LANGUAGES: tuple[Language, ...] = ("en", "zh", "mixed")
SMALL = Settings(hours=0.02, test=10, speakers=12, seed=5)


def rows(corpus: Path) -> list[dict[str, str]]:
    with (corpus / METADATA).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def contents(corpus: Path) -> dict[str, str]:
    """Digest of every file, by name."""
    paths = (path for path in corpus.rglob("*") if path.is_file())
    return {str(path.relative_to(corpus)): digest(path.read_bytes()) for path in paths}


def audio(corpus: Path, row: dict[str, str]) -> NDArray[np.float64]:
    samples, rate = soundfile.read(corpus / row["audio"])
    assert rate == 16_000
    assert samples.ndim == 1
    found: NDArray[np.float64] = samples
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus made by one process."""
    out = tmp_path_factory.mktemp("corpora") / "small"
    synthesize(out, SMALL, processes=1)
    return out


def test_metadata_is_true(small: Path) -> None:
    table = rows(small)
    assert (small / METADATA).read_bytes().startswith("\t".join(COLUMNS).encode() + b"\n")
    assert len({row["id"] for row in table}) == len(table)
    assert sum(row["split"] == "test" for row in table) == 10
    for row in table:
        assert len(audio(small, row)) / 16_000 == float(row["duration_s"])
        assert row["variant"] in (TEST_VARIANTS if row["split"] == "test" else TRAIN_VARIANTS)
    assert {path.name for path in (small / "audio").iterdir()} == {Path(row["audio"]).name for row in table}
    assert not {r["speaker"] for r in table if r["split"] == "test"} & {
        r["speaker"] for r in table if r["split"] == "train"
    }


def test_speech_is_there_and_not_clipped(small: Path) -> None:
    for row in rows(small):
        samples = audio(small, row)
        assert 0.7 < len(samples) / 16_000 < 8.0
        assert 0.05 < np.abs(samples).max() <= 0.951
        if not row["noise"]:
            loud = np.nonzero(np.abs(samples) > 0.02 * np.abs(samples).max())[0]
            assert loud[0] < 0.45 * 16_000, "too much silence in front"
            assert len(samples) - loud[-1] < 0.45 * 16_000, "too much silence behind"


def test_the_hours_asked_for_are_met() -> None:
    for language in LANGUAGES:
        plan = planned("train", Settings(hours=0.5, language=language))
        assert 500 < len(plan) < 1500


def test_hours_and_summary(small: Path) -> None:
    table = rows(small)
    train = sum(float(row["duration_s"]) for row in table if row["split"] == "train") / 3600
    assert train == pytest.approx(0.02, rel=0.15)
    hours = sum(float(row["duration_s"]) for row in table) / 3600
    summary = synthesize(small, SMALL)
    assert summary.utterances == len(table)
    assert summary.hours == pytest.approx(hours)
    assert summary.speakers == len({row["speaker"] for row in table})


def test_another_number_of_processes_gives_the_same_bytes(small: Path, tmp_path: Path) -> None:
    synthesize(tmp_path / "three", SMALL, processes=3)
    assert contents(tmp_path / "three") == contents(small)


def test_another_seed_gives_other_speech(small: Path) -> None:
    plan = planned("train", Settings(hours=0.02, test=0, speakers=12, seed=6))
    assert [item.order.text for item in plan] != [row["text"] for row in rows(small) if row["split"] == "train"]


def test_what_is_missing_is_made_and_the_rest_left(small: Path) -> None:
    before = contents(small)
    first, second, *others = sorted((small / "audio").iterdir())
    kept = {path: path.stat().st_mtime_ns for path in others}
    first.unlink()
    second.write_bytes(b"damaged")
    (small / "audio" / "train-000003.flac.77.partial").write_bytes(b"left by a killed process")
    synthesize(small, SMALL, processes=1)
    assert contents(small) == before
    assert {path: path.stat().st_mtime_ns for path in others} == kept


def test_noise_is_what_the_table_says(tmp_path: Path) -> None:
    """The noisy corpus less the clean one of the same seed is the noise, up to one gain for each utterance."""
    shares = {"clean": 0.0, "noisy": 1.0}
    for name, share in shares.items():
        synthesize(tmp_path / name, Settings(hours=0.01, test=8, speakers=4, noise=share), processes=2)
    wanted = Settings(hours=0.01, test=8, speakers=4)
    plan = [*planned("train", wanted), *planned("test", wanted)]
    kinds = set()
    for item, clean_row, row in zip(plan, rows(tmp_path / "clean"), rows(tmp_path / "noisy"), strict=True):
        assert clean_row["text"] == row["text"]
        assert not clean_row["snr_db"]
        clean, noisy = audio(tmp_path / "clean", clean_row), audio(tmp_path / "noisy", row)
        before, after = round(item.order.before * 16_000), round(item.order.after * 16_000)
        spoken = clean[before:-after]
        gain = 1.0 if np.abs(noisy).max() < 0.949 else float(noisy @ clean / (clean @ clean))
        measured = 10 * np.log10(np.mean((gain * spoken) ** 2) / np.mean((noisy - gain * clean) ** 2))
        assert measured == pytest.approx(float(row["snr_db"]), abs=0.5)
        if row["split"] == "test":
            assert row["snr_db"] == "20"
        else:
            assert 10 <= float(row["snr_db"]) <= 30
        kinds.add(row["noise"])
    assert kinds == {"white", "pink", "brown", "babble"}


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_share_of_noise_is_exact(split: Split) -> None:
    plan = planned(split, Settings(hours=0.1, test=100, noise=0.3))
    assert sum(bool(item.order.noise) for item in plan) == round(0.3 * len(plan))


def test_test_speakers_cover_every_test_variant() -> None:
    plan = planned("test", Settings(test=300))
    assert {item.order.speaker.variant for item in plan} == set(TEST_VARIANTS)


@pytest.mark.parametrize("language", ["zh", "mixed"])
def test_mandarin(language: Language, tmp_path: Path) -> None:
    synthesize(tmp_path / "zh", Settings(hours=0.003, test=2, language=language), processes=1)
    table = rows(tmp_path / "zh")
    assert {row["accent"] for row in table} == {"cmn"}
    assert {row["language"] for row in table} <= ({"zh"} if language == "zh" else {"zh", "mul"})
    seconds = [float(row["duration_s"]) / len(row["text"].replace(" ", "")) for row in table]
    assert all(0.08 < each < 0.7 for each in seconds)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("hours", 0.0, "hours must be more than 0 and at most 10,000, not 0.0; try --hours 2"),
        ("hours", float("nan"), "hours must be"),
        ("test", -1, "test must be 0 or more, not -1"),
        ("speakers", 0, "speakers must be at least 1, not 0"),
        ("language", "fr", "language must be en, zh or mixed, not fr"),
        ("noise", 1.5, "noise must be a share from 0 to 1, not 1.5"),
        ("train_snr_db", (30.0, 10.0), "train_snr_db must be two numbers, the smaller first"),
        ("seed", -1, "seed must be 0 or more, not -1"),
    ],
)
def test_bad_settings(field: str, value: Any, rule: str) -> None:
    with pytest.raises(SettingsError, match=rule):
        Settings(**{field: value})


def test_no_processes(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="processes must be at least 1, not 0"):
        synthesize(tmp_path, SMALL, processes=0)


def test_a_folder_of_other_settings_is_refused_and_kept(small: Path) -> None:
    before = contents(small)
    with pytest.raises(SynthesisError, match=r"other settings \(seed 5, not 6\); choose another folder"):
        synthesize(small, Settings(hours=0.02, test=10, speakers=12, seed=6))
    assert contents(small) == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(SynthesisError, match=r"must be empty or a synthetic corpus, but it holds 'thesis.txt'"):
        synthesize(tmp_path, SMALL)
    with pytest.raises(SynthesisError, match="must be a folder, but it is a file"):
        synthesize(tmp_path / "thesis.txt", SMALL)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path, "synthesising"), pytest.raises(DataError, match="is in use"):
        synthesize(tmp_path, SMALL)


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(SynthesisError, match=r"pip install 'allears\[synth\]'"):
        synthesize(tmp_path / "new", SMALL)


def command(out: Path, *more: str) -> list[str]:
    arguments = ["--hours", "0.02", "--test", "10", "--speakers", "12", "--seed", "5"]
    return [sys.executable, "-m", "allears", "synthesize", str(out), *arguments, *more]


def marked(mark: str) -> list[int]:
    """Processes, whoever their parent is now, that were started with ``mark`` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_for(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.002)
    return False


def kill_when(files: int, out: Path) -> None:
    """Start the real command, kill it once ``files`` utterances are there, and see that nothing lives on."""
    mark = f"ALLEARS_TEST_MARK={uuid.uuid4()}"
    environment = os.environ | dict([mark.split("=")])
    process = subprocess.Popen(command(out), env=environment, stderr=subprocess.DEVNULL)
    folder = out / "audio"
    assert wait_for(lambda: folder.exists() and len(list(folder.glob("*.flac"))) >= files, 30)
    time.sleep(random.uniform(0, 0.02))
    assert len(marked(mark)) > 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_for(lambda: not marked(mark), 5), "processes outlive the killed command"


def test_killing_it_again_and_again_changes_no_byte(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    for files in (0, random.randint(1, 8), random.randint(12, 20), random.randint(24, 32)):
        kill_when(files, out)
        assert not (out / METADATA).exists()
    done = subprocess.run(command(out, "--json", "--processes", "2"), capture_output=True, text=True, check=True)
    assert contents(out) == contents(small)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert set(answer) >= {"utterances", "hours", "speakers"}
    assert answer["utterances"] == len(rows(small))


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    bad = [sys.executable, "-m", "allears", "synthesize", str(tmp_path / "x"), "--language", "fr"]
    done = subprocess.run(bad, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: language must be en, zh or mixed, not fr; try --language en.\n"
    assert not (tmp_path / "x").exists()
