from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allears.loading.collection import Collection, SourceSettings
from allears.loading.tokens import token_counts
from allears.text.tokenizer import Tokenizer, TokenizerSettings, ctc_frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def collection(dataset: Path) -> Collection:
    return Collection.open([SourceSettings(dataset=str(dataset))])


def test_tokens_frames_and_unknown_tokens_are_counted(collection: Collection) -> None:
    tokenizer, _ = Tokenizer.train(["low mid", "mid low"], TokenizerSettings(kind="characters"))
    counts = token_counts(collection, tokenizer)[:]
    assert counts.shape == (len(collection), 3)
    for utterance in range(len(collection)):
        text = collection.text(utterance)
        tokens = tokenizer.encode(text)
        unknown = sum(letter not in "lowmid " for letter in text)
        assert counts[utterance].tolist() == [len(text), ctc_frames(tokens), unknown]
    assert counts[:, 2].any()


def test_counts_are_kept_for_a_tokenizer_and_counted_anew_when_damaged(
    dataset: Path, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, _ = Tokenizer.train(["low mid high top"] * 2, TokenizerSettings(kind="words"))
    before = set((dataset / "cache").glob("*.npy"))
    counts = token_counts(collection, tokenizer)[:]
    (kept,) = set((dataset / "cache").glob("*.npy")) - before
    with monkeypatch.context() as patched:
        patched.setattr(Tokenizer, "encode", None)  # not needed
        assert (token_counts(collection, tokenizer)[:] == counts).all()
    for damage in (kept.read_bytes()[:100], b""):
        kept.write_bytes(damage)
        assert (token_counts(collection, tokenizer)[:] == counts).all()
    np.save(kept, counts[:, :2])  # of another form
    assert (token_counts(collection, tokenizer)[:] == counts).all()
    assert (np.load(kept) == counts).all()
    other, _ = Tokenizer.train(["low mid"] * 2, TokenizerSettings(kind="words"))
    assert token_counts(collection, other)[:][:, 2].sum() == sum(
        word in {"high", "top"} for n in range(len(collection)) for word in collection.text(n).split()
    )


def test_what_cannot_be_kept_is_said(
    make_dataset: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection = Collection.open([SourceSettings(dataset=str(make_dataset(tmp_path, 4)))])
    (tmp_path / "dataset" / "cache").write_text("a file where a folder is needed")
    tokenizer, _ = Tokenizer.train(["low mid high top"] * 2, TokenizerSettings(kind="words"))
    assert token_counts(collection, tokenizer)[:].shape == (4, 3)
    assert re.search(r"note: token counts are not kept: .*\.npy cannot be written: .*\.", capsys.readouterr().err)
