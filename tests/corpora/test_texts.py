from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allears.corpora.texts import texts
from allears.errors import CorpusError

if TYPE_CHECKING:
    from pathlib import Path

SAID = {"a": "one two", "b/c": "three"}


@pytest.mark.parametrize(
    "lines",
    [
        "a\tone two\nb/c\tthree\n",
        "\ufeffa one two\r\nb/c three\r\n",
        "speaker\tid\ttext\ns\ta\tone two\ns\tb/c\tthree\n",
        '{"id": "a", "text": "one two", "other": 1}\n\n{"text": "three", "id": "b/c"}\n',
    ],
)
def test_every_form(tmp_path: Path, lines: str) -> None:
    (tmp_path / "new").write_text(lines, encoding="utf-8")
    assert texts(tmp_path / "new") == SAID


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("a\tone\nb\n", "line 2: 'b' has no tab between id and transcript"),
        ("a\tone\nb\t \n", "line 2: 'b' has no transcript; leave the line out to keep the old one"),
        ("a one\na two\n", "line 2: 'a' was there before; an utterance has one transcript"),
        ("id\ttext\textra\na\tone\n", "line 2: 2 fields where the header has 3"),
        ("id\ttext\tid\na\tone\ta\n", "has a column twice: id, text, id"),
        ('{"id": "a", "text": ""}\n', "line 1: the field 'text' is missing or empty"),
        ('{"id": "a", "text": "one"}\n[]\n', "line 2: a JSON list where an object is needed"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "new").write_text(lines, encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        texts(tmp_path / "new")
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="none cannot be read: No such file"):
        texts(tmp_path / "none")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"a\tone\nb\t\xff\n")
    with pytest.raises(CorpusError, match="line 2 is not UTF-8"):
        texts(tmp_path / "new")
