"""Through kills and other numbers of processes each utterance is used exactly once a pass; what is not so is named."""

from __future__ import annotations

import json
import shutil
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from allears.audit import audit
from allears.cli.main import app
from allears.errors import CheckpointError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Command = Callable[..., subprocess.CompletedProcess[str]]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.case("transformers #40245")
@pytest.mark.case("lhotse #1442")
def test_a_run_that_was_killed_and_resized_is_complete_and_disjoint(command: Command, resized: Path) -> None:
    found = audit(resized)
    assert found.problems == []
    assert (found.steps, found.epochs, found.rejected) == (25, 2, 0)
    metrics = [line for line in lines(resized / "metrics.jsonl") if "loss" in line]
    assert found.used == sum(line["utterances"] for line in metrics)
    ranks = [{line["step"] for line in lines(path)} for path in (resized / "ledger").glob("rank-*.jsonl")]
    shared = [sum(step in held for held in ranks) for step in range(25)]
    assert [size for size, _ in groupby(shared)] == [4, 3, 1, 4]
    done = command("inspect", "ledger", resized, "--json")
    assert json.loads(done.stdout.splitlines()[-1])["complete"] is True
    assert "as planned, each exactly once in 2 whole epochs" in done.stdout


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda line: line["used"].update({"0": []}), "holds other utterances than the plan"),
        (lambda line: line["used"]["0"].append(line["used"]["0"][0]), "holds other utterances than the plan"),
        (lambda line: line["used"].pop("0"), "step 3: micro-batch 0 stands in no ledger"),
    ],
)
def test_what_is_missing_or_doubled_is_named(
    resized: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], None], said: str
) -> None:
    copy = shutil.copytree(resized, tmp_path / "run")
    path = copy / "ledger" / "rank-0.jsonl"
    spoiled = lines(path)
    spoil(next(line for line in spoiled if line["step"] == 3))
    path.write_text("".join(json.dumps(line) + "\n" for line in spoiled))
    assert any(said in problem for problem in audit(copy).problems)


def test_a_micro_batch_in_two_ledgers_is_named(command: Command, resized: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(resized, tmp_path / "run")
    ledgers = copy / "ledger"
    (ledgers / "rank-9.jsonl").write_text((ledgers / "rank-1.jsonl").read_text())
    done = command("inspect", "ledger", copy, fails=True)
    assert "micro-batch 1 stands in 2 ledgers" in done.stdout
    assert "NOT as planned" in done.stdout


def test_lines_that_are_lost_or_spoiled_are_named(resized: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(resized, tmp_path / "run")
    for path in (copy / "ledger").glob("*.jsonl"):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines(path) if line["step"] < 20))
    assert audit(copy).problems == ["steps 20 to 24 stand in no ledger, but the newest checkpoint has them."]
    for path in (copy / "ledger").glob("*.jsonl"):
        path.write_text("")
    assert audit(copy).problems == ["steps 0 to 24 stand in no ledger, but the newest checkpoint has them."]
    (copy / "ledger" / "rank-0.jsonl").write_text("garbage\n[]\n")
    assert "rank-0.jsonl: line 1 is not a line of a ledger." in audit(copy).problems


def test_a_run_without_a_ledger_says_so(resized: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(resized, tmp_path / "run")
    shutil.rmtree(copy / "ledger")
    with pytest.raises(CheckpointError, match="has no ledger"):
        audit(copy)


def test_a_folder_that_is_not_there_is_no_run(tmp_path: Path) -> None:
    for view in ("ledger", "quarantine"):
        done = CliRunner().invoke(app, ["inspect", view, str(tmp_path / "mistyped")])
        assert str(done.exception) == (
            f"there is no run folder {tmp_path / 'mistyped'}; name the folder of a run that has trained."
        )


def test_a_run_without_a_whole_epoch_does_not_call_itself_complete(
    command: Command, dataset: Path, small: Sequence[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command("train", "tiny", f"dataset={dataset}", "--out", run, *small, "training.steps=2", "training.average=false")
    (said,) = command("inspect", "ledger", run).stdout.splitlines()
    assert said.startswith("2 steps: utterances were used ")
    assert said.endswith(" could not be used 0 times: as planned, no epoch is whole yet")
