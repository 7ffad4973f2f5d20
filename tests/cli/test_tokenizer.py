"""``allears tokenizer``: what it writes can be trained with; wrong settings are one sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from allears.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., subprocess.CompletedProcess[str]]


def test_a_tokenizer_of_each_kind_is_written_and_said(command: Command, dataset: Path, tmp_path: Path) -> None:
    done = command("tokenizer", dataset, tmp_path / "words", "--kind", "words", "--json")
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "vocabulary": 6,
        "kind": "words",
        "tokenizer": str(tmp_path / "words"),
    }
    assert Tokenizer.load(tmp_path / "words").size == 6
    done = command("tokenizer", dataset, tmp_path / "bpe", "--pieces", 16, "text=cased_punctuated", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["vocabulary"] == 16
    assert Tokenizer.load(tmp_path / "bpe").normalise("Low, mid") == "Low, mid"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kind", "unigram"], ["kind is 'unigram'", "'characters', 'words', 'bpe' or 'mixed'"]),
        (["minimum_cont=1"], ["did you mean 'minimum_count'?"]),
    ],
)
def test_wrong_settings_are_one_sentence(
    command: Command, dataset: Path, tmp_path: Path, arguments: list[str], said: list[str]
) -> None:
    done = command("tokenizer", dataset, tmp_path / "out", *arguments, fails=True)
    assert done.stderr.splitlines()[-1].startswith("error: ")
    for words in said:
        assert words in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()
