"""What the command line says to wrong settings and wrong data: one sentence, a non-zero exit, nothing lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from allears.training.checksums import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("plan.step_secods=3", ["plan.step_secods", "did you mean 'plan.step_seconds'?"]),
        ("model.encoder.widht=3", ["model.encoder.widht", "did you mean 'model.encoder.width'?"]),
        ("model.encoder.kind=transformer", ["model.encoder.kind is 'transformer'", "'convolutional', 'conformer'"]),
        ("model.encoder={kind: conformer, haeds: 3}", ["'model.encoder.haeds'", "did you mean 'model.encoder.heads'?"]),
        ("model.encoder={kind: conformer, heads: 5}", ["model.encoder.heads is 5", "128"]),
        ("training.steps=true", ["training.steps", "True", "true or false"]),
        ("test.t.dataset=/nowhere", ["/nowhere"]),
        ("plan.step_seconds=long", ["plan.step_seconds", "'long'", "number"]),
        ("plan.step_seconds=-3", ["plan.step_seconds", "-3", "greater than 0"]),
        ("plan.micro_batches=3", ["plan.micro_batches", "power of two"]),
        ("training.epochs=.nan", ["training.epochs", "finite"]),
        ("train.splt=train", ["splt", "did you mean 'train.0.split'?"]),
        ("seed", ["'seed'", "key=value"]),
        ("dataset=/nowhere", ["/nowhere"]),
        ("train.split=nosuch", ["nosuch", "split"]),
        ("validation.v.dataset=/nowhere", ["/nowhere"]),
        ("tokenizer.path=/nowhere", ["/nowhere", "tokenizer"]),
        ("plan.max_seconds=0.35", ["0.35", "plan.max_seconds"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path, override: str, said: list[str]
) -> None:
    place = [] if override.startswith("dataset=") else [f"dataset={dataset}"]
    done = command("train", "tiny", *place, *small, override, "--out", tmp_path / "run", fails=True)
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    for words in said:
        assert words in error


@pytest.mark.parametrize("most", [8, 12, 18])
def test_the_limit_of_open_files_is_named_wherever_it_is_met(dataset: Path, tmp_path: Path, most: int) -> None:
    given = [sys.executable, "-m", "allears", "train", "tiny", f"dataset={dataset}", "--out", str(tmp_path / "run")]
    limited = ["bash", "-c", f'ulimit -Sn {most} && exec "$@"', "-", *given]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"error: this process may have {most} files open at a time and needs more; raise the limit, as with "
        "`ulimit -n 1024`, and give the same command again."
    )


def test_an_unknown_config_names_the_shipped_ones(command: Command) -> None:
    assert "did you mean 'tiny'?" in command("train", "tyni", fails=True).stderr
    assert "does not exist" in command("train", "nowhere.yaml", fails=True).stderr


def test_training_without_data_says_what_to_name(command: Command, tmp_path: Path) -> None:
    assert "dataset=PATH" in command("train", "tiny", "--out", tmp_path / "run", fails=True).stderr


def test_utterances_longer_than_a_micro_batch(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    overrides = [*small, "plan.step_seconds=1.2"]  # 0.3 s a micro-batch; the shortest utterance has 0.4 s
    done = command("train", "tiny", f"dataset={dataset}", *overrides, "--out", tmp_path / "run", fails=True)
    assert "longer than a micro-batch (0.3 s: plan.step_seconds over plan.micro_batches)" in done.stderr
    assert "plan.step_seconds" in done.stderr


def test_more_processes_than_micro_batches(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    done = command(
        "train", "tiny", f"dataset={dataset}", *small, "--out", tmp_path / "run", "--processes", 5, fails=True
    )
    assert "5 processes cannot share 4 micro-batches" in done.stderr.splitlines()[-1]
    assert done.stderr.count("cannot share") == 1


@pytest.mark.parametrize("processes", [0, -1])
def test_processes_must_be_positive(command: Command, dataset: Path, processes: int) -> None:
    assert "--processes" in command("train", "tiny", f"dataset={dataset}", "--processes", processes, fails=True).stderr


@pytest.fixture(scope="module")
def trained(command: Command, dataset: Path, small: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    command("train", "tiny", f"dataset={dataset}", *small, "training.steps=3", "--out", run)
    return run


def copied(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def test_another_architecture_is_refused_by_name(
    command: Command, dataset: Path, small: Sequence[str], trained: Path, tmp_path: Path
) -> None:
    run = copied(trained, tmp_path)
    before = sorted(path.name for path in run.rglob("*"))
    changed = [*small, "training.steps=5", "model.encoder.width=48"]
    done = command("train", "tiny", f"dataset={dataset}", *changed, "--out", run, fails=True)
    assert "model.encoder.width is 48" in done.stderr
    assert "32" in done.stderr
    assert sorted(path.name for path in run.rglob("*")) == before
    written = run / "checkpoints" / "step-00000003" / "settings.yaml"
    written.write_text(written.read_text().replace("width: 32", "width: 48"))
    seal(written.parent)
    done = command("evaluate", run, dataset, fails=True)
    assert "another architecture" in done.stderr
    assert "[32] instead of [48]" in done.stderr


def test_other_data_is_refused(
    command: Command, make_dataset: Callable[..., Path], small: Sequence[str], trained: Path, tmp_path: Path
) -> None:
    other = make_dataset(tmp_path / "other", 150, seed=5)
    done = command("train", "tiny", f"dataset={other}", *small, "--out", copied(trained, tmp_path), fails=True)
    assert "train" in done.stderr.splitlines()[-1]
    assert "--out" in done.stderr.splitlines()[-1]


def test_a_damaged_checkpoint_is_named(command: Command, dataset: Path, trained: Path, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    weights = run / "checkpoints" / "step-00000003" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    done = command("evaluate", run, dataset, fails=True)
    assert "step-00000003 is damaged: model.safetensors has 1,000 bytes" in done.stderr


def test_evaluating_a_folder_that_is_no_run(command: Command, dataset: Path, tmp_path: Path) -> None:
    assert "no complete checkpoint" in command("evaluate", tmp_path, dataset, fails=True).stderr


def test_show_prints_each_setting_with_its_origin(command: Command) -> None:
    lines = command("train", "tiny", "plan.step_seconds=77", "--show").stdout.splitlines()
    found = {line.split()[0]: line.split()[1:] for line in lines}
    assert found["plan.step_seconds"] == ["77.0", "command", "line"]
    assert found["model.encoder.width"][-1] == "tiny"
    assert found["plan.blur"][-1] == "default"


def test_show_prints_the_settings_of_the_encoder_that_is_chosen(command: Command) -> None:
    def shown(*overrides: str) -> dict[str, list[str]]:
        lines = command("train", "tiny", *overrides, "--show").stdout.splitlines()
        return {line.split()[0]: line.split()[1:] for line in lines if line.startswith("model.encoder.")}

    assert shown()["model.encoder.kind"] == ["convolutional", "default"]
    assert "model.encoder.heads" not in shown()
    found = shown("model.encoder.kind=conformer", "model.encoder.heads=8")
    assert found["model.encoder.kind"] == ["conformer", "command", "line"]
    assert found["model.encoder.heads"] == ["8", "command", "line"]
    assert found["model.encoder.width"] == ["256", "tiny"]
    assert found["model.encoder.positions"] == ["rotary", "default"]
