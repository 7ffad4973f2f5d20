"""``allears validate`` as a person starts it: what it says and writes, bad input, kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from allears.files import read_json, write_json
from allears.manifest.index import Index, write

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., subprocess.CompletedProcess[str]]

COMMAND = (sys.executable, "-m", "allears", "validate")


def last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one error sentence of a command that failed."""
    said = done.stderr.splitlines()[-1]
    assert said.startswith("error: ")
    assert said.endswith((".", "?"))
    return said


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    """A dataset of tones of its own."""
    return Path(shutil.copytree(dataset, tmp_path / "tones"))


def test_what_is_said_and_written(command: Command, copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = command("validate", copy, "tiny", "plan.step_seconds=8", "--json", "--processes", 1)
    told, out = last(done), copy / "validation"
    assert told["utterances"] == 160
    assert told["out"] == str(out)
    assert "no micro-batch holds it: longer than a micro-batch" in done.stdout
    assert {path.name for path in out.iterdir()} == {"report.html", "report.json", "problems.jsonl"}
    report = read_json(out / "report.json")
    assert (report["utterances"], report["problems"], report["config"]) == (160, told["problems"], "tiny")
    assert {one["kind"]: one["utterances"] for one in report["findings"]} == told["by_kind"]
    lines = [json.loads(line) for line in (out / "problems.jsonl").read_text().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines)
    for kind, count in told["by_kind"].items():
        assert sum(kind in line["kinds"] for line in lines) == count
    example = next(one for one in report["findings"] if one["kind"] == "no micro-batch holds it")["examples"][0]
    assert example["id"] in {line["id"] for line in lines}
    assert "longer than a micro-batch (2 s" in example["detail"]
    assert example["text"]
    assert before == {path: path.read_bytes() for path in before}


def test_thresholds_are_settings_and_strict_is_about_faults(command: Command, dataset: Path, tmp_path: Path) -> None:
    quiet = (dataset, "preflight.noisy=-50", "--out", tmp_path / "out", "--json", "--processes", 1)
    done = command("validate", *quiet)
    assert last(done)["problems"] == 0
    assert "nothing was found" in done.stdout
    silent = command("validate", *quiet, "preflight.silence_level=0", "--strict", fails=True)
    assert last(silent)["by_kind"] == {"silent": 160}
    assert not silent.stderr
    loud = command("validate", dataset, "--out", tmp_path / "out", "--json", "--strict", "--processes", 1)
    assert set(last(loud)["by_kind"]) == {"noisy"}  # a tone is as steady as noise; but no fault


def test_a_training_of_one_split(command: Command, dataset: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out", "--processes", 1)
    said = sentence(command("validate", dataset, "tiny", "train.split=train", *out, fails=True))
    assert "has no split 'train'" in said
    assert not (tmp_path / "out" / "report.json").exists()
    command("validate", dataset, "tiny", f"train.dataset={dataset}", "train.split=", *out)


def test_errors_are_one_sentence(command: Command, copy: Path, tmp_path: Path) -> None:
    def said(*arguments: object) -> str:
        return sentence(command("validate", *arguments, "--processes", 1, fails=True))

    assert "does not exist" in said(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "not a prepared dataset" in said(tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())
    assert "did you mean 'tiny'" in said(copy, "tinny")
    assert "there is no setting 'pause'; did you mean 'pause_seconds'?" in said(copy, "preflight.pause=3")
    assert "noisy is 'loud': must be a number" in said(copy, "preflight.noisy=loud")
    (tmp_path / "bad.yaml").write_text("plan: {step_seconds: [")
    assert "not valid YAML" in said(copy, tmp_path / "bad.yaml")
    (tmp_path / "file").write_text("")
    assert "cannot be written" in said(copy, "--out", tmp_path / "file")
    write(tmp_path / "nothing", [], "pcm16", [])
    assert "nothing" in said(tmp_path / "nothing")
    about = read_json(copy / "index" / "index.json")
    write_json(copy / "index" / "index.json", about | {"version": 99})
    assert "has version 99" in said(copy)
    (copy / "index" / "index.json").write_text("{")
    assert "is damaged" in said(copy)
    assert not (copy / "validation").exists()


def test_a_dataset_that_may_only_be_read(command: Command, copy: Path, tmp_path: Path) -> None:
    # A folder that nobody can write to, the administrator included: a file stands where it would be made.
    (copy / "validation").write_text("")
    shutil.rmtree(copy / "cache", ignore_errors=True)
    (copy / "cache").write_text("")
    failed = command("validate", copy, "tiny", "--processes", 1, fails=True)
    assert "cannot be written" in sentence(failed)
    assert "--out" in sentence(failed)
    done = command("validate", copy, "tiny", "--out", tmp_path / "out", "--processes", 1)
    assert "token counts are not kept" in done.stderr
    assert (tmp_path / "out" / "report.html").exists()


def test_damage_is_found_and_not_met(command: Command, copy: Path, tmp_path: Path) -> None:
    index = Index.open(copy)
    for shard in index.shards:
        path = copy / shard.name
        path.write_bytes(path.read_bytes()[:-1000])
    (copy / "manifest.jsonl").unlink()
    done = command("validate", copy, "tiny", "--out", tmp_path / "out", "--json", "--processes", 1)
    assert last(done)["by_kind"]["damaged shard"] == 160
    assert "manifest differs" in last(done)["by_kind"]
    assert "cannot be played" in (tmp_path / "out" / "report.html").read_text()


def started(copy: Path, *arguments: object) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A preflight in the background, and its first process that listens."""
    process = subprocess.Popen(
        ["env", "--default-signal=INT", *COMMAND, str(copy), "--processes", "2", *map(str, arguments)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            if "spawn_main" in " ".join(child.cmdline()):
                return process, child
        time.sleep(0.01)
    raise AssertionError(process.communicate())


def test_a_killed_process_is_named(copy: Path) -> None:
    process, worker = started(copy)
    worker.kill()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    said = errors.splitlines()[-1]
    assert f"of {copy} (shard" in said
    assert "was killed (SIGKILL)" in said
    assert said.endswith("run the same command again.")
    assert not list((copy / "validation").iterdir())


def test_control_c_leaves_no_half_report(copy: Path) -> None:
    process, _ = started(copy)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not list((copy / "validation").iterdir())


def test_help_has_an_example_and_loads_nothing_heavy() -> None:
    code = "import sys, allears.cli.validate; print({'torch','numpy','soundfile','pydantic'} & set(sys.modules) or '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert "Example: allears validate data/mine" in done.stdout
