"""Lines of a manifest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from allears.errors import DatasetError
from allears.manifest import manifest
from allears.types import Rejection, Utterance

if TYPE_CHECKING:
    from pathlib import Path

FULL = Utterance(
    *("u1", "/a.wav", "设定 \u2028 x", 1.5, 2.25, "anna", "zh", "train"),
    extra={"snr": 3, "tags": ["a"], "n": None},
)


def test_round_trip_with_other_fields(tmp_path: Path) -> None:
    utterances = [FULL, Utterance("u2", "b.wav", 'quote " and \n newline')]
    manifest.write(tmp_path / "m.jsonl", utterances)
    assert list(manifest.read(tmp_path / "m.jsonl")) == utterances
    lines = (tmp_path / "m.jsonl").read_bytes().split(b"\n")
    assert len(lines) == 3
    assert list(json.loads(lines[0]))[:8] == list(manifest.FIELDS)
    assert "设定".encode() in lines[0]


def test_other_fields_never_hide_ours() -> None:
    assert json.loads(manifest.line(Utterance("u", "a", "t", extra={"id": "other", "x": 1})))["id"] == "u"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("{", "not JSON"),
        ("[1]", "object is needed"),
        ('{"audio": "a", "text": "t"}', "'id' is missing"),
        ('{"id": " ", "audio": "a", "text": "t"}', "'id' is missing"),
        ('{"id": "x", "audio": "a", "text": ["t"]}', "'text' must be text"),
        ('{"id": "x", "audio": "a", "text": "t", "start": "soon"}', "'start' must be a number of seconds"),
        ('{"id": "x", "audio": "a", "text": "t", "duration": NaN}', "'duration' must be"),
        ('{"id": "x", "audio": "a", "text": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_line_has_its_number(tmp_path: Path, line: str, wrong: str) -> None:
    (tmp_path / "m.jsonl").write_bytes(manifest.line(FULL) + line.encode() + b"\n")
    with pytest.raises(DatasetError, match=wrong) as caught:
        list(manifest.read(tmp_path / "m.jsonl"))
    assert "m.jsonl, line 2:" in str(caught.value)


def test_numbers_and_null_where_text_is_meant() -> None:
    found = manifest.utterance({"id": 7, "audio": "a", "text": 42, "speaker": None, "start": "1.5", "duration": ""})
    assert (found.id, found.text, found.speaker, found.start, found.duration) == ("7", "42", "", 1.5, None)


def test_a_missing_manifest(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        list(manifest.read(tmp_path / "none.jsonl"))


def test_rejections(tmp_path: Path) -> None:
    manifest.write_rejected(tmp_path / "r.jsonl", [Rejection("ü", "no text", "because.")])
    line = json.loads((tmp_path / "r.jsonl").read_text())
    assert line == {"id": "ü", "reason": "no text", "detail": "because."}
