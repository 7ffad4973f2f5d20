from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from allears.errors import SettingsError
from allears.evaluation.result import brief, keep, place, rates, scored, summary
from allears.evaluation.transcribe import Hypothesis

if TYPE_CHECKING:
    from pathlib import Path


def pair(reference: str, text: str, problem: str = "", speaker: str = "ann") -> Hypothesis:
    return Hypothesis(f"u{len(reference)}", reference, text, speaker, 0.5, problem)


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
    assert brief(PAIRS) == ({"wer": 3 / 5, "cer": 5 / 14, "mer": 3 / 5}, "wer")


def test_each_rate_has_its_counts_and_its_interval() -> None:
    found = rates([pair("a b c d", "a b c x" if n % 4 else "a b c d") for n in range(200)])
    wer = found["rates"]["wer"]
    assert wer == {
        "rate": 150 / 800,
        "errors": 150,
        "units": 800,
        "substitutions": 150,
        "insertions": 0,
        "deletions": 0,
        "interval": found["interval"],
    }
    low, high = wer["interval"]
    assert 0.16 < low < 150 / 800 < high < 0.21
    assert found["rates"]["cer"]["units"] == 800
    assert found["bootstrap"] == {"level": 0.95, "resamples": 1000, "over": "utterances"}
    assert rates([pair(f"a {n}", "a", speaker=f"s{n}") for n in range(30)])["bootstrap"]["over"] == "speakers"


@pytest.mark.parametrize(
    ("languages", "headline", "counts"),
    [((), "cer", (1, 3)), (("en",), "wer", (1, 1)), (("zh",), "cer", (1, 3)), (("zh", "en"), "cer", (1, 3))],
)
def test_the_language_says_which_rate_is_the_headline(
    languages: tuple[str, ...], headline: str, counts: tuple[int, int]
) -> None:
    found = rates([pair("我们 走。", "我门 走")], languages)
    assert found["headline"] == headline
    assert (found["errors"], found["units"]) == counts
    assert found["languages"] == list(languages)


def test_the_normaliser_is_applied_to_both_and_named() -> None:
    pairs = [pair("Hello, <NOISE> World!", "hello world"), pair("It’s 5", "IT'S ５")]
    assert (rates(pairs)["errors"], rates(pairs)["normaliser"]) == (0, "basic")
    kept = summary(scored(pairs, "verbatim"), normalise="verbatim")
    assert (kept["errors"], kept["normaliser"]) == (5, "verbatim")
    with pytest.raises(SettingsError, match="--normaliser 'nosuch'"):
        scored(pairs, "nosuch")


def test_an_utterance_without_a_reference_is_counted() -> None:
    found = rates([pair("a b", "a b"), pair("", "x y z"), pair("?!", ""), pair("", "")])
    assert (found["errors"], found["units"], found["insertions"]) == (3, 2, 3)
    assert (found["utterances"], found["empty_references"]) == (4, 3)


@pytest.mark.parametrize(
    "reference", ["مرحبا بالعالم", "Cafe\u0301 😀", "\u200b", "नमस्ते दुनिया", "１２３", "…", "สวัสดี", "a\ud800b"]
)
def test_any_script_is_scored(reference: str) -> None:
    found = rates([pair(reference, "hello"), pair(reference, reference)], ["en"])
    assert found["units"] % 2 == 0
    assert rates([pair(reference, reference)])["errors"] == 0


def test_speakers_come_worst_first() -> None:
    pairs = [pair("a b", "a b", speaker="ann"), pair("a b", "b", speaker="bob"), pair("c d", "c d", speaker="bob")]
    found = rates(pairs)["speakers"]
    assert list(found) == ["bob", "ann"]
    assert found["bob"] == {"rate": 1 / 4, "errors": 1, "units": 4, "utterances": 2}
    assert rates([pair("a", "a", speaker="")])["speakers"] == {}


def test_the_worst_utterances_have_most_errors() -> None:
    found = summary(scored([*PAIRS, pair("all right", "all right")]), worst=2)["worst"]
    assert [one["id"] for one in found] == ["u2", "u3"]
    assert found[1] == {
        "id": "u3",
        "speaker": "ann",
        "reference": "mat",
        "text": "",
        "confidence": 0.5,
        "problem": "the audio is unreadable",
        "errors": 1,
        "units": 1,
        "substitutions": 0,
        "insertions": 0,
        "deletions": 1,
    }
    assert len(summary(scored(PAIRS))["worst"]) == 3
    assert rates([pair("a", "a")])["worst"] == []


def test_no_utterances_have_no_errors() -> None:
    found = rates([])
    assert (found["wer"], found["units"], found["utterances"], found["interval"]) == (0.0, 0, 0, None)


def test_result_and_hypotheses_can_be_read_again(tmp_path: Path) -> None:
    pairs = [*PAIRS, pair("größe 你", "größe")]
    found = scored(pairs)
    keep(tmp_path / "evaluation" / "dev", summary(found), found)
    folder = tmp_path / "evaluation" / "dev"
    lines = [json.loads(line) for line in (folder / "hypotheses.jsonl").read_text(encoding="utf-8").splitlines()]
    counts = [line.pop("counts") for line in lines]
    assert [Hypothesis(**line) for line in lines] == pairs
    assert counts[0]["cer"] == {"errors": 1, "units": 9, "substitutions": 1, "insertions": 0, "deletions": 0}
    assert "größe 你" in (folder / "hypotheses.jsonl").read_text(encoding="utf-8")
    result = json.loads((folder / "result.json").read_text())
    assert result == json.loads(json.dumps(rates(pairs)))
    assert sum(one["mer"]["errors"] for one in counts) == result["rates"]["mer"]["errors"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for folder in ("checkpoints/step-00000005", "average"):
        (tmp_path / "run" / folder).mkdir(parents=True)
        (tmp_path / "run" / folder / "state.json").write_text("{}")
    return tmp_path / "run"


def test_a_result_lies_in_its_run(run: Path) -> None:
    for one in (run, run / "checkpoints" / "step-00000005", run / "average"):
        assert place(one, "test", None) == run / "evaluation" / "test"
    assert place(run, "test", run.parent / "elsewhere") == run.parent / "elsewhere"


def test_nothing_is_written_into_a_checkpoint(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="lies in the checkpoint"):
        place(run, "test", run / "average" / "deep" / "down")
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / "state.json").write_text("{}")
    with pytest.raises(SettingsError, match="outside a run; name a folder for the result with --out"):
        place(tmp_path / "copied", "test", None)
    assert place(tmp_path / "copied", "test", tmp_path / "out") == tmp_path / "out"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up"])
def test_a_name_is_no_path(run: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="--name must be a plain name"):
        place(run, name, None)
