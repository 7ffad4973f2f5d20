"""``path<TAB>text`` lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allears.corpora import pairs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from allears.corpora.layout import Found


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def reasons(found: Found) -> list[tuple[str, str]]:
    assert all(one.detail.endswith(".") for one in found.rejections)
    return [(one.id, one.reason) for one in found.rejections]


def test_pairs(tmp_path: Path) -> None:
    touch(tmp_path, "a.wav", "b/c.d.wav")
    (tmp_path / "x.tsv").write_text("a.wav\tone two\nb/c.d.wav\t three \n./a.wav\tagain\n")
    found = pairs.utterances(tmp_path / "x.tsv")
    assert [(one.id, one.text) for one in found.utterances] == [("a", "one two"), ("b/c.d", "three"), ("a", "again")]
    assert found.utterances[1].audio == str(tmp_path / "b/c.d.wav")
    assert found.utterances[0].duration is None
    assert not found.rejections
    assert not found.notes


def test_pairs_as_they_come(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbfa.wav\tone\ttwo\r\n",
        b"\r\n",
        b"no tab here\r\n",
        b"\tno path\r\n",
        b"b.wav\tbroken \xff utf-8\r\n",
        b"c.wav\t\r\n",
        "d.wav\tline separators \u2028 \x0c stay\r\n".encode(),
        b"e.wav\tlast line without an end",
    ]
    (tmp_path / "x.tsv").write_bytes(b"".join(lines))
    found = pairs.utterances(tmp_path / "x.tsv")
    assert [(one.id, one.text) for one in found.utterances] == [
        ("a", "one two"),
        ("c", ""),
        ("d", "line separators \u2028 \x0c stay"),
        ("e", "last line without an end"),
    ]
    assert reasons(found) == [("x.tsv:3", "bad line"), ("x.tsv:4", "bad line"), ("x.tsv:5", "bad line")]
    assert any("1 transcripts hold a tab" in note for note in found.notes)


def test_paths_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "here/a.wav")
    touch(tmp_path, "there/x.tsv")
    (tmp_path / "there/x.tsv").write_text("a.wav\tone\n")
    monkeypatch.chdir(tmp_path / "here")
    found = pairs.utterances(tmp_path / "there/x.tsv")
    assert found.utterances[0].audio == str(tmp_path / "here/a.wav")
    assert "were found under" in found.notes[0]
