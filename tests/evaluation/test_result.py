from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from allears.evaluation.result import brief, keep, rates
from allears.evaluation.transcribe import Hypothesis

if TYPE_CHECKING:
    from pathlib import Path


def pair(reference: str, text: str, problem: str = "") -> Hypothesis:
    return Hypothesis(f"u{len(reference)}", reference, text, "ann", problem)


PAIRS = [
    pair("the cat sat", "the bat sat"),  # one of three words, one of nine letters
    pair("on", "on a"),  # an insertion
    pair("mat", "", problem="the audio is unreadable"),  # a deletion, and three letters
]


def test_rates_are_counted_over_all_utterances() -> None:
    found = rates(PAIRS)
    assert found["wer"] == 3 / 5
    assert found["cer"] == (1 + 1 + 3) / 14
    assert found["mer"] == 3 / 5
    assert (found["errors"], found["units"]) == (3, 5)
    assert (found["substitutions"], found["insertions"], found["deletions"]) == (1, 1, 1)
    assert (found["utterances"], found["not_recognised"]) == (3, 1)
    assert brief(PAIRS) == {"wer": 3 / 5, "cer": 5 / 14}


@pytest.mark.parametrize(
    ("languages", "headline"),
    [
        ((), "wer"),
        (("en",), "wer"),
        (("zh",), "cer"),
        (("zh-CN", "ja"), "cer"),
        (("zh", "en"), "wer"),
        (("",), "wer"),
    ],
)
def test_the_language_says_which_rate_is_the_headline(languages: tuple[str, ...], headline: str) -> None:
    found = rates([pair("我们 走", "我门 走")], languages)
    assert found["headline"] == headline
    assert (found["errors"], found["units"]) == ((1, 3) if headline == "cer" else (1, 2))


def test_no_utterances_have_no_errors() -> None:
    found = rates([])
    assert (found["wer"], found["units"], found["utterances"]) == (0.0, 0, 0)


def test_result_and_hypotheses_can_be_read_again(tmp_path: Path) -> None:
    pairs = [*PAIRS, pair("größe 你", "größe")]
    keep(tmp_path / "evaluation" / "dev", rates(pairs), pairs)
    folder = tmp_path / "evaluation" / "dev"
    lines = (folder / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Hypothesis(**json.loads(line)) for line in lines] == pairs
    assert "größe 你" in lines[3]
    assert json.loads((folder / "result.json").read_text()) == rates(pairs)
