"""What is found out before the first step: memory, and whether bits repeat."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from allears.loading.collection import Collection, Column
from allears.loading.epochs import EpochPlans
from allears.loading.heaviest import heaviest
from allears.loading.plan import PlanSettings
from allears.run.settings import RunSettings
from allears.run.train import train
from allears.settings import build, overridden
from allears.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ALONE = World(0, 1, 0, 1, torch.device("cpu"))


@pytest.fixture
def trained(dataset: Path, small: Sequence[str]) -> Callable[..., dict[str, Any]]:
    def run(folder: Path, *given: str) -> dict[str, Any]:
        data = (f"train.dataset={dataset}", "training.tensorboard=false", "training.digests=true")
        return train(build(RunSettings, overridden({}, [*small, *data, *given]), "test"), folder, ALONE)

    return run


@pytest.mark.case("icefall #910")
def test_memory_that_does_not_suffice_is_found_before_the_first_step(
    dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    most = 3 << 30  # bytes of addresses; the imports take about a half

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    wide = ("model.encoder.width=2048", "plan.step_seconds=400", "plan.micro_batches=2", "model.encoder.blocks=12")
    done = subprocess.run(
        [sys.executable, "-m", "allears", "train", "tiny", f"dataset={dataset}", *small, *wide, "--out", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        preexec_fn=limited,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "the plan's largest micro-batch (" in last, done.stderr
    assert "does not fit into the memory of cpu: set plan.micro_batches to 4 (now 2; a step stays what it is)" in last
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.case("icefall #910")
def test_the_heaviest_are_those_of_most_padded_frames_and_tokens(of_lengths: Callable[..., Collection]) -> None:
    draw = np.random.default_rng(1)
    lengths, tokens = draw.integers(8000, 160000, 500), draw.integers(1, 90, 500).astype(np.int32)

    counts, settings = Column([(tokens[:, None], range(500))]), PlanSettings(step_seconds=80, micro_batches=4)
    plans = EpochPlans(of_lengths(lengths), counts, settings, 0)
    step = plans.steps_per_epoch + 3
    plan, epoch, _ = plans.at(step)
    places = [(epoch * plan.steps + at, place) for at in range(plan.steps) for place in range(4)]

    def most(values: Any) -> tuple[int, int]:
        def size(at: tuple[int, int]) -> int:
            members = plan.micro_batch(at[0] - epoch * plan.steps, at[1])
            return len(members) * int(values[members].max(initial=0))

        return max(places, key=size)

    assert heaviest(plans, step) == (most(lengths), most(tokens))


def test_the_probe_changes_no_bit_and_is_not_repeated(trained: Callable[..., Any], tmp_path: Path) -> None:
    batch_norm = ("model.encoder.dropout=0.1", "training.steps=3", "training.save_every=1")
    trained(tmp_path / "a", *batch_norm)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "probe.json").write_bytes((tmp_path / "a" / "probe.json").read_bytes())
    trained(tmp_path / "b", *batch_norm)  # without a probe
    assert (tmp_path / "a" / "digests.jsonl").read_bytes() == (tmp_path / "b" / "digests.jsonl").read_bytes()
    assert json.loads((tmp_path / "a" / "probe.json").read_text())["precision"] == "float32"


def test_an_operation_that_does_not_repeat_is_named(
    trained: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "fine", "training.steps=1")
    assert "came out in other bits" not in capsys.readouterr().err
    draw = np.random.default_rng(0)
    plain = torch.nn.functional.layer_norm

    def noisy(*given: Any, **named: Any) -> torch.Tensor:
        return plain(*given, **named) + float(draw.normal(0, 1e-7))

    monkeypatch.setattr(torch.nn.functional, "layer_norm", noisy)
    trained(tmp_path / "noisy", "training.steps=1", "model.encoder.kind=conformer", "model.encoder.heads=2")
    said = capsys.readouterr().err
    (note,) = (line for line in said.splitlines() if "in other bits" in line)
    assert "rank 0 ran a micro-batch twice, and the output of encoder." in note
    assert "blocks.0.first.0 came out in other bits" in note  # the first layer norm, not what follows it
