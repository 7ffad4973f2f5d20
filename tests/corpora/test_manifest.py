"""Our own manifest as a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allears.corpora import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from allears.corpora.layout import Found


def reasons(found: Found) -> list[tuple[str, str]]:
    assert all(one.detail.endswith(".") for one in found.rejections)
    return [(one.id, one.reason) for one in found.rejections]


def test_own_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text(
        '{"id": "u1", "audio": "a.wav", "text": "one", "start": 1, "duration": 2, "split": "test", "snr": 3}\n'
        '{"id": 1}\n'
    )
    found = manifest.utterances(tmp_path / "manifest.jsonl")
    (one,) = found.utterances
    assert (one.id, one.audio, one.start, one.duration) == ("u1", str(tmp_path / "a.wav"), 1.0, 2.0)
    assert (one.split, dict(one.extra)) == ("test", {"snr": 3})
    assert reasons(found) == [("manifest.jsonl:2", "bad line")]
