from __future__ import annotations

from typing import TYPE_CHECKING

from allears.evaluation.report import tell
from allears.evaluation.result import scored, summary
from allears.evaluation.transcribe import Hypothesis

if TYPE_CHECKING:
    import pytest


def told(pairs: list[Hypothesis], capsys: pytest.CaptureFixture[str], worst: int = 5) -> str:
    where = {"name": "test", "folder": "runs/a/evaluation/test", "run": "runs/a", "checkpoint": "step-00000002"}
    tell({**summary(scored(pairs), worst=worst), **where})
    return capsys.readouterr().out


def test_rates_speakers_and_the_worst_utterances_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [Hypothesis(f"u{n}", "a b c d", "a b c" if n < 4 else "a b c d", f"s{n}", 0.9, "") for n in range(9)]
    pairs.append(Hypothesis("gone", "e f", "", "s9", 0.0, "it is cut off"))
    pairs.append(Hypothesis("none", "", "x", "s9", 0.2, ""))
    said = told(pairs, capsys)
    assert "test: 11 utterances, step-00000002 of runs/a, normaliser basic" in said
    rows = {line.split()[0]: line.split() for line in reversed(said.splitlines()) if line.strip()}
    assert rows["wer"][1:3] == ["←", f"{7 / 38:.2%}"]
    assert rows["wer"][4:] == ["7", "38", "0", "1", "6"]
    assert rows["cer"][1] == f"{7 / 38:.2%}"
    assert "1 utterance could not be read" in said
    assert "1 utterance without a reference" in said
    assert "10 speakers" in said
    assert rows["s9"][1:] == ["150.00%", "3", "2", "2"]
    assert "s3" not in rows
    assert rows["s8"][1] == "0.00%"
    assert (
        "gone (s9): 2 errors in 2, confidence 0.00\n  it is cut off\n  said   e f\n  heard  * *\n         D D\n" in said
    )
    assert said.count("  heard  ") == 5
    assert told(pairs, capsys, worst=1).count("  heard  ") == 1


def test_one_speaker_has_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    said = told([Hypothesis("u", "a", "a", "ann", 1.0, "")], capsys)
    assert "speakers" not in said
    assert "heard" not in said


def test_names_with_brackets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [Hypothesis(name, "a", "b", name, 1.0, "") for name in ("[red]x[/red]", "[bold]")]
    said = told(pairs, capsys)
    assert said.count("[red]x[/red]") == 3
    assert said.count("[bold]") == 3
