from __future__ import annotations

import pytest

from allears.errors import SettingsError
from allears.text.pieces import ENOUGH_FOR_BYTES, Mixed, Pieces, train
from allears.text.vocabulary import FIRST, UNKNOWN

LINES = ["low mid high top", "top low", "mid mid high", "the lot a mighty mop"]
MANY = [f"{a}{b}{c} {b}{a}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]


@pytest.fixture(scope="module")
def plain() -> Pieces:
    return train(LINES, 24, None)[0]


@pytest.fixture(scope="module")
def with_bytes() -> Pieces:
    return train(LINES, 300, True)[0]


def test_bytes_are_256_of_the_pieces_and_write_anything(with_bytes: Pieces) -> None:
    assert with_bytes.size == 300
    assert len(with_bytes.byte_ids) == 256
    text = "low жж mid 龘 \U0001f600"
    tokens = with_bytes.encode(text)
    assert UNKNOWN not in tokens
    assert sum(token in with_bytes.byte_ids for token in tokens) == len("жж龘\U0001f600".encode())
    assert with_bytes.decode(tokens) == text
    assert with_bytes.unknown(text) == ["ж", "ж", "龘", "\U0001f600"]
    assert not any(token in with_bytes.byte_ids for line in LINES for token in with_bytes.encode(line))


def test_bytes_that_are_no_text_are_left_out(with_bytes: Pieces) -> None:
    first = with_bytes.byte_ids.start
    assert with_bytes.decode([first + 0xE9, first + ord("A")]) == "A"


def test_without_bytes_a_letter_never_seen_is_the_unknown_token(plain: Pieces) -> None:
    assert (plain.size, len(plain.byte_ids)) == (24, 0)
    assert plain.encode("low ж").count(UNKNOWN) == 1
    assert plain.unknown("low ж x") == ["ж", "x"]


def test_bytes_come_by_default_where_there_is_room() -> None:
    roomy, remark = train(MANY, ENOUGH_FOR_BYTES, None)
    assert (roomy.size, len(roomy.byte_ids), remark) == (ENOUGH_FOR_BYTES, 256, "")
    assert not train(MANY, 200, None)[0].byte_ids
    assert not train(MANY, ENOUGH_FOR_BYTES, False)[0].byte_ids
    # Few texts do not get a vocabulary that is mostly bytes.
    small, remark = train(LINES, ENOUGH_FOR_BYTES, None)
    assert not small.byte_ids
    assert f"support {small.size} pieces, not {ENOUGH_FOR_BYTES}" in remark


def test_too_few_pieces_for_the_letters() -> None:
    with pytest.raises(SettingsError, match=r"tokenizer\.pieces is 100: must be at least 272 .* and 256 bytes"):
        train(LINES, 100, True)
    with pytest.raises(SettingsError, match=r"tokenizer\.kind to characters or mixed for CJK"):
        train(["今天天气很好我们去公园"], 8, None)
    assert train(LINES, 272, True)[0].size == 272


def test_a_long_line_is_learnt_from() -> None:
    assert Pieces(train(["ab " * 5000 + "z"], 8, None)[0].model).unknown("z") == []


def test_cjk_characters_follow_the_pieces(plain: Pieces) -> None:
    mixed = Mixed(plain, ["世", "界"])
    assert mixed.size == 26
    tokens = mixed.encode("low 世界 mid high 界")
    assert tokens == [*plain.encode("low"), 24, 25, *plain.encode("mid high"), 25]
    assert mixed.decode(tokens) == "low 世界 mid high 界"
    assert mixed.encode("世好") == [24, UNKNOWN]
    assert mixed.unknown("世好 lowж") == ["好", "ж"]


def test_a_cjk_character_without_a_token_is_only_its_bytes(with_bytes: Pieces) -> None:
    mixed = Mixed(with_bytes, ["世"])
    for text in ["世好", "好世", "low 好 mid 世好", "好"]:
        assert mixed.decode(mixed.encode(text)) == text
    assert mixed.encode("好世") == [*(with_bytes.byte_ids[byte] for byte in "好".encode()), 300]


def test_cjk_alone_needs_no_pieces() -> None:
    mixed = Mixed(None, ["世", "界"])
    assert (mixed.size, mixed.encode("世界"), mixed.decode([FIRST])) == (4, [2, 3], "世")
    assert mixed.encode("世 ok no") == [2, UNKNOWN, UNKNOWN]
    assert mixed.unknown("世 ok") == ["o", "k"]
