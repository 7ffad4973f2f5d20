"""NeMo-style JSON lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from allears.corpora import nemo

if TYPE_CHECKING:
    from pathlib import Path

    from allears.corpora.layout import Found


def reasons(found: Found) -> list[tuple[str, str]]:
    assert all(one.detail.endswith(".") for one in found.rejections)
    return [(one.id, one.reason) for one in found.rejections]


def test_nemo(tmp_path: Path) -> None:
    records = [
        {"audio_filepath": "a.wav", "duration": 1.5, "text": "one", "lang": "en", "pred": 3},
        {"audio_filepath": "b.wav", "duration": 2, "offset": 0, "text": "two"},
        {"audio_filepath": "b.wav", "duration": 2, "offset": 2.5, "text": "three", "speaker": 7},
        {"audio_filepath": "c.wav", "text": None, "duration": None, "id": "own"},
    ]
    lines = [json.dumps(one) for one in records] + ['{"text": "x"}', "{"]
    (tmp_path / "train.json").write_text("\ufeff" + "\r\n".join(lines))
    found = nemo.utterances(tmp_path / "train.json")
    assert [(one.id, one.start, one.duration, one.text, one.speaker) for one in found.utterances] == [
        ("a", 0.0, 1.5, "one", ""),
        ("b-00000000", 0.0, 2.0, "two", ""),
        ("b-00002500", 2.5, 2.0, "three", "7"),
        ("own", 0.0, None, "", ""),
    ]
    assert (found.utterances[0].language, dict(found.utterances[0].extra)) == ("en", {"pred": 3})
    assert found.utterances[0].audio == str(tmp_path / "a.wav")
    assert reasons(found) == [("train.json:5", "bad line"), ("train.json:6", "bad line")]
