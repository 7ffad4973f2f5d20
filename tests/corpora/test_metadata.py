"""``metadata.tsv``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allears.corpora import metadata
from allears.corpora.find import find
from allears.errors import CorpusError

if TYPE_CHECKING:
    from pathlib import Path

    from allears.corpora.layout import Found


def reasons(found: Found) -> list[tuple[str, str]]:
    assert all(one.detail.endswith(".") for one in found.rejections)
    return [(one.id, one.reason) for one in found.rejections]


def test_metadata_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_bytes(
        b"\xef\xbb\xbfsplit\ttext\tAudio\tid\tspeaker\tage\tlanguage\tduration_s\r\n"
        b"train\tone\ta.wav\tu1\tanna\t7\ten\t1.5\r\n"
    )
    (one,) = metadata.utterances(tmp_path / "metadata.tsv").utterances
    assert (one.id, one.text, one.speaker, one.split, one.language) == ("u1", "one", "anna", "train", "en")
    assert one.audio == str(tmp_path / "a.wav")
    assert one.duration is None  # the whole file, whatever was rounded into the column
    assert dict(one.extra) == {"age": "7", "duration_s": "1.5"}


def test_metadata_lines_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text(
        "id\taudio\ttext\tspeaker\nu1\ta.wav\tone\ttab\tanna\nu2\ta.wav\tone\n\ta.wav\tone\tanna\nu4\t\tone\tanna\n"
        "u5\ta.wav\tone\tanna\n"
    )
    found = metadata.utterances(tmp_path / "metadata.tsv")
    assert [one.id for one in found.utterances] == ["u5"]
    assert reasons(found) == [(f"metadata.tsv:{line}", "bad line") for line in (2, 3, 4, 5)]
    assert "5 fields where the header has 4" in found.rejections[0].detail


def test_metadata_with_text_last_keeps_tabs_as_spaces(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text("audio\ttext\na.wav\tone\ttwo\nb.wav\t\n")
    found = metadata.utterances(tmp_path / "metadata.tsv")
    assert [(one.id, one.text) for one in found.utterances] == [("a", "one two"), ("b", "")]
    assert "1 transcripts hold a tab" in found.notes[0]


def test_metadata_with_segments(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text(
        "audio\tstart\tduration\ttext\na.wav\t0\t1.5\tx\na.wav\t1.5\t2\ty\na.wav\tz\t\tz\n"
    )
    found = metadata.utterances(tmp_path / "metadata.tsv")
    assert [(one.id, one.start, one.duration) for one in found.utterances] == [
        ("a-00000000", 0.0, 1.5),
        ("a-00001500", 1.5, 2.0),
    ]
    assert "'start' must be a number" in found.rejections[0].detail


@pytest.mark.parametrize("header", ["id\ttext", "audio\ttext\taudio", "audio\ttext\tx\tx", ""])
def test_metadata_header_that_is_wrong(tmp_path: Path, header: str) -> None:
    (tmp_path / "metadata.tsv").write_text(f"{header}\nsomething\n")
    with pytest.raises(CorpusError, match=r"The header of .*metadata\.tsv"):
        metadata.utterances(tmp_path / "metadata.tsv")


def test_utf16_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.tsv").write_text("audio\ttext\na.wav\tone\n", encoding="utf-16")
    with pytest.raises(CorpusError, match="UTF-16"):
        find(tmp_path)
