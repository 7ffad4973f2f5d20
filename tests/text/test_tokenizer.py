from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allears.errors import DataError, SettingsError
from allears.text.normalise import NormaliserSettings
from allears.text.tokenizer import BLANK, UNKNOWN, Tokenizer, TokenizerSettings, ctc_frames

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["Low mid, high top.", "top low", "mid mid high", "The lot: a mighty mop!"]


def trained(pieces: int = 24, texts: list[str] = TEXTS) -> Tokenizer:
    return Tokenizer.train(texts, TokenizerSettings(pieces=pieces))[0]


def test_text_comes_back_as_the_normaliser_leaves_it() -> None:
    tokenizer = trained()
    for text in [*TEXTS, "hot dip in a pool", ""]:
        tokens = tokenizer.encode(text)
        assert tokens.dtype == np.int32
        assert BLANK not in tokens
        assert tokens.max(initial=0) < tokenizer.size == 24
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text).tolist()) == tokenizer.normalise(text)


def test_blanks_are_left_out_of_the_text() -> None:
    tokenizer = trained()
    apart = [token for pair in tokenizer.encode("low mid").tolist() for token in (BLANK, pair, BLANK)]
    assert tokenizer.decode(apart) == "low mid"
    assert tokenizer.decode([BLANK, BLANK]) == ""


def test_letters_never_seen_are_unknown_and_leave_no_trace_in_the_text() -> None:
    tokenizer = trained()
    tokens = tokenizer.encode("low жж mid").tolist()
    assert tokens.count(UNKNOWN) == 1
    assert UNKNOWN not in tokenizer.encode("low mid")
    assert tokenizer.decode(tokens) == "low mid"
    assert tokenizer.decode([UNKNOWN]) == ""


def test_the_same_texts_and_settings_give_the_same_tokenizer() -> None:
    assert trained().digest == trained().digest
    others = [
        trained(25),
        trained(texts=[*TEXTS, "low low low high"]),
        Tokenizer.train(TEXTS, TokenizerSettings(pieces=24, text=NormaliserSettings(lowercase=False)))[0],
    ]
    assert len({trained().digest, *(other.digest for other in others)}) == 4


def test_no_more_sentences_are_used_than_asked_for() -> None:
    few = Tokenizer.train(["abab", "cdcd", "abba", "dccd"], TokenizerSettings(pieces=8, sentences=2))[0]
    assert few.encode("ab").tolist().count(UNKNOWN) == 0
    assert few.encode("cd").tolist().count(UNKNOWN) == 1


def test_a_saved_tokenizer_is_the_same_one(tmp_path: Path) -> None:
    text = NormaliserSettings(lowercase=False, punctuation=True)
    tokenizer = Tokenizer.train(TEXTS, TokenizerSettings(pieces=30, text=text))[0]
    tokenizer.save(tmp_path / "new" / "folder")
    loaded = Tokenizer.load(tmp_path / "new" / "folder")
    assert (loaded.digest, loaded.size) == (tokenizer.digest, tokenizer.size)
    assert loaded.encode(TEXTS[3]).tolist() == tokenizer.encode(TEXTS[3]).tolist()
    assert loaded.decode(loaded.encode(TEXTS[3]).tolist()) == TEXTS[3]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokenizer.model", None),
        ("tokenizer.model", b""),
        ("tokenizer.model", b"not a model"),
        ("tokenizer.model", 0.5),
        ("tokenizer.json", None),
        ("tokenizer.json", b""),
        ("tokenizer.json", b"[]"),
        ("tokenizer.json", b'{"kind": "bpe"}'),
        ("tokenizer.json", b'{"kind": "bpe", "text": {"lower": true}}'),
        ("tokenizer.json", b'{"kind": "bpe", "text": 3}'),
    ],
)
def test_a_damaged_folder_is_named_in_one_sentence(tmp_path: Path, name: str, data: bytes | float | None) -> None:
    trained().save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if data is not None:
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else whole[: int(len(whole) * data)])
    with pytest.raises(DataError, match=re.escape(str(tmp_path))) as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_model_of_another_tokenizer_is_found(tmp_path: Path) -> None:
    trained().save(tmp_path / "one")
    trained(25).save(tmp_path / "two")
    (tmp_path / "two" / "tokenizer.model").replace(tmp_path / "one" / "tokenizer.model")
    with pytest.raises(DataError, match="not the one"):
        Tokenizer.load(tmp_path / "one")


def test_more_pieces_than_the_texts_support_are_lowered_and_it_is_said() -> None:
    tokenizer, remark = Tokenizer.train(TEXTS, TokenizerSettings(pieces=5000))
    assert 20 < tokenizer.size < 100
    assert (
        remark == f"tokenizer: these transcripts support {tokenizer.size} pieces, not 5000; {tokenizer.size} are used."
    )
    as_many, silent = Tokenizer.train(TEXTS, TokenizerSettings(pieces=tokenizer.size))
    assert (as_many.digest, silent) == (tokenizer.digest, "")
    assert Tokenizer.train(TEXTS, TokenizerSettings(pieces=tokenizer.size + 1))[1]


def test_fewer_pieces_than_letters_are_an_error_with_the_number_needed() -> None:
    with pytest.raises(
        SettingsError, match=r"tokenizer\.pieces is 8: must be at least (\d+) for the letters"
    ) as caught:
        trained(8)
    found = re.search(r"at least (\d+)", str(caught.value))
    assert found is not None
    needed = int(found.group(1))
    assert trained(needed).size == needed
    with pytest.raises(SettingsError, match=f"at least {needed} "):
        trained(needed - 1)


@pytest.mark.parametrize("texts", [[], [""], ["…", "?!", "  "]])
def test_texts_with_nothing_left_are_an_error(texts: list[str]) -> None:
    with pytest.raises(SettingsError, match=r"no transcript has a letter left.*tokenizer\.text"):
        trained(texts=texts)


@pytest.mark.parametrize(
    ("tokens", "frames"), [([], 0), ([5], 1), ([5, 6], 2), ([5, 5], 3), ([5, 5, 5], 5), ([5, 6, 6, 5, 5, 7], 8)]
)
def test_equal_neighbours_need_a_frame_more(tokens: list[int], frames: int) -> None:
    assert ctc_frames(np.array(tokens, dtype=np.int32)) == frames
