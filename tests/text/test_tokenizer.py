from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allears.errors import DataError, SettingsError
from allears.settings import build
from allears.text.normalise import STYLES, NormaliserSettings
from allears.text.tokenizer import Kind, Tokenizer, TokenizerSettings, ctc_frames
from allears.text.vocabulary import BLANK, UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["Low mid, high top.", "top low", "mid mid high", "The lot: a mighty mop!"]
MIXED = [*TEXTS, "打开 high 空调", "空调 温度, 三十度 mid!", "the温度 a (it's) 度, top"]
KINDS: tuple[Kind, ...] = ("characters", "words", "bpe", "mixed")


def trained(pieces: int = 24, texts: list[str] = TEXTS, **settings: Any) -> Tokenizer:
    values = {"pieces": pieces, "minimum_count": 1, **settings}
    return Tokenizer.train(texts, build(TokenizerSettings, values, "test"))[0]


@cache
def of_kind(kind: Kind, style: str, byte_fallback: bool) -> Tokenizer:
    return trained(320 if byte_fallback else 50, MIXED, kind=kind, text=style, byte_fallback=byte_fallback)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", STYLES)
def test_text_comes_back_as_the_normaliser_leaves_it(kind: Kind, style: str) -> None:
    tokenizer = of_kind(kind, style, byte_fallback=False)
    for text in [*MIXED, ""]:
        tokens = tokenizer.encode(text)
        assert tokens.dtype == np.int32
        assert tokens.min(initial=2) > UNKNOWN > BLANK
        assert tokens.max(initial=0) < tokenizer.size
        assert tokenizer.decode(tokens.tolist()) == tokenizer.normalise(text)
        assert tokenizer.unknown(text) == []
        assert tokenizer.unknown_tokens(tokens) == 0


LETTERS = sorted(set("".join(MIXED)))
LINES = st.lists(st.sampled_from([*LETTERS, "low", "mighty", "空调"]), max_size=12).map("".join)


@given(LINES, st.sampled_from(["characters", "bpe", "mixed"]), st.sampled_from(list(STYLES)))
def test_any_text_of_known_letters_comes_back(text: str, kind: Kind, style: str) -> None:
    tokenizer = of_kind(kind, style, byte_fallback=False)
    if not tokenizer.unknown(text):  # lower case of a letter that was only seen in upper case, say
        assert tokenizer.decode(tokenizer.encode(text).tolist()) == tokenizer.normalise(text)


@given(st.one_of(st.text(max_size=20), LINES), st.sampled_from(["bpe", "mixed"]), st.sampled_from(list(STYLES)))
def test_any_text_at_all_comes_back_from_bytes(text: str, kind: Kind, style: str) -> None:
    tokenizer = of_kind(kind, style, byte_fallback=True)
    assert tokenizer.writes_bytes
    tokens = tokenizer.encode(text)
    assert UNKNOWN not in tokens
    assert tokenizer.decode(tokens.tolist()) == tokenizer.normalise(text)
    assert tokenizer.unknown_tokens(tokens) == sum(len(letter.encode()) for letter in tokenizer.unknown(text))


@given(st.text(max_size=20), st.sampled_from(KINDS), st.sampled_from(list(STYLES)))
def test_no_text_is_an_error_and_what_is_known_stays(text: str, kind: Kind, style: str) -> None:
    tokenizer = of_kind(kind, style, byte_fallback=False)
    tokens = tokenizer.encode(text)
    assert bool(tokenizer.unknown(text)) == (UNKNOWN in tokens)
    assert tokenizer.unknown_tokens(tokens) == tokens.tolist().count(UNKNOWN)
    normal = tokenizer.normalise(text)
    assert len(tokenizer.decode(tokens.tolist())) <= len(normal)


@given(st.lists(st.integers(0, 51), max_size=12), st.sampled_from(KINDS))
def test_any_tokens_make_a_text(tokens: list[int], kind: Kind) -> None:
    tokenizer = of_kind(kind, "plain", byte_fallback=False)
    text = tokenizer.decode([min(token, tokenizer.size - 1) for token in tokens])
    assert text == " ".join(text.split())


def test_blanks_are_left_out_of_the_text() -> None:
    tokenizer = trained()
    apart = [token for pair in tokenizer.encode("low mid").tolist() for token in (BLANK, pair, BLANK)]
    assert tokenizer.decode(apart) == "low mid"
    assert tokenizer.decode([BLANK, BLANK]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_letters_never_seen_are_unknown_and_leave_no_trace_in_the_text(kind: Kind) -> None:
    tokenizer = trained(kind=kind)
    tokens = tokenizer.encode("low ж mid").tolist()
    assert tokens.count(UNKNOWN) == 1
    assert tokenizer.unknown("low Ж mid") == ["ж"]
    assert UNKNOWN not in tokenizer.encode("low mid")
    assert tokenizer.decode(tokens) == "low mid"
    assert tokenizer.decode([UNKNOWN]) == ""


def test_what_the_pieces_count() -> None:
    texts = ["打开 空调", "打开 灯 now", "关 空调 now on"]
    assert trained(12, texts, kind="mixed").size == 12 + len(set("打开空调灯关"))
    assert trained(8, texts, kind="characters").size == 2 + len(set("打开空调灯关 now"))
    assert trained(8, texts, kind="words").size == 2 + len({"打开空调", "打开灯", "now", "关空调", "on"})
    assert trained(8, ["打开 空调"], kind="mixed").size == 2 + 4  # no pieces without another script


def test_rare_units_have_no_token_and_it_is_said() -> None:
    texts = ["ab ba é", "ab ba ab", "打开 打开 关"]
    sizes: dict[Kind, int] = {"characters": 2 + 5, "mixed": 8 + 2, "bpe": 8}
    for kind, size in sizes.items():
        tokenizer, remark = Tokenizer.train(texts, TokenizerSettings(kind=kind, pieces=8))
        assert tokenizer.size == size
        assert tokenizer.unknown("ab é关") == ["é", "关"]
        assert remark.startswith("tokenizer: 2 of 6 characters occur fewer than 2 times (tokenizer.minimum_count)")
        assert "'é', '关'" in remark
    words, remark = Tokenizer.train(texts, TokenizerSettings(kind="words"))
    assert words.size == 2 + len({"ab", "ba"})
    assert "3 of 5 words occur fewer" not in remark
    assert "2 of 4 words occur fewer" in remark
    with pytest.raises(SettingsError, match=r"tokenizer\.minimum_count is 9: no word .* lower it"):
        Tokenizer.train(texts, TokenizerSettings(kind="words", minimum_count=9))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_and_settings_give_the_same_tokenizer(kind: Kind) -> None:
    assert trained(kind=kind).digest == trained(kind=kind).digest
    others = [
        trained(texts=[*TEXTS, "low low low high zebra"], kind=kind),
        trained(text={"lowercase": False}, kind=kind),
        *([trained(25, kind=kind)] if kind in {"bpe", "mixed"} else []),
    ]
    assert len({trained(kind=kind).digest, *(other.digest for other in others)}) == 1 + len(others)


def test_no_more_sentences_are_used_than_asked_for() -> None:
    few = trained(8, ["abab", "cdcd", "abba", "dccd"], sentences=2)
    assert few.encode("ab").tolist().count(UNKNOWN) == 0
    assert few.encode("cd").tolist().count(UNKNOWN) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_one(tmp_path: Path, kind: Kind) -> None:
    trained().save(tmp_path / "new" / "folder")  # what stood there before is gone
    tokenizer = of_kind(kind, "cased_punctuated", byte_fallback=False)
    tokenizer.save(tmp_path / "new" / "folder")
    loaded = Tokenizer.load(tmp_path / "new" / "folder")
    assert (loaded.digest, loaded.size, loaded.kind) == (tokenizer.digest, tokenizer.size, kind)
    assert loaded.encode(MIXED[5]).tolist() == tokenizer.encode(MIXED[5]).tolist()
    assert loaded.decode(loaded.encode(MIXED[5]).tolist()) == tokenizer.normalise(MIXED[5])
    assert (tmp_path / "new" / "folder" / "tokenizer.model").exists() == (kind in {"bpe", "mixed"})


WRONG_MODELS = (None, b"", b"not a model", 0.5)
WRONG_SETTINGS = (
    *(None, b"", b"[]", 0.5),
    *(b'{"kind": "bpe"}', b'{"kind": "bpe", "text": {"lower": true}}', b'{"kind": "bpe", "text": 3}'),
)


@pytest.mark.parametrize(
    ("kind", "name", "data"),
    [
        *(("bpe", "tokenizer.model", data) for data in WRONG_MODELS),
        *(("bpe", "tokenizer.json", data) for data in WRONG_SETTINGS),
        *(("characters", "tokenizer.json", data) for data in WRONG_SETTINGS),
    ],
)
def test_a_damaged_folder_is_named_in_one_sentence(
    tmp_path: Path, kind: Kind, name: str, data: bytes | float | None
) -> None:
    trained(kind=kind).save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if data is not None:
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else whole[: int(len(whole) * data)])
    with pytest.raises(DataError, match=re.escape(str(tmp_path))) as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("version", 1, "version is 1"),
        ("version", 3, "version is 3"),
        ("kind", "unigram", "kind is 'unigram'"),
        ("kind", "words", "changed"),
        ("units", ["a", "b"], "changed"),
        ("text", {"lowercase": False, "punctuation": False}, "changed"),
    ],
)
def test_another_version_or_a_changed_file_is_found(tmp_path: Path, field: str, value: object, said: str) -> None:
    trained(kind="characters").save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DataError, match=said):
        Tokenizer.load(tmp_path)


def test_a_model_of_another_tokenizer_is_found(tmp_path: Path) -> None:
    trained().save(tmp_path / "one")
    trained(25).save(tmp_path / "two")
    (tmp_path / "two" / "tokenizer.model").replace(tmp_path / "one" / "tokenizer.model")
    with pytest.raises(DataError, match="not the one"):
        Tokenizer.load(tmp_path / "one")


def test_more_pieces_than_the_texts_support_are_lowered_and_it_is_said() -> None:
    def train(pieces: int) -> tuple[Tokenizer, str]:
        return Tokenizer.train(TEXTS, TokenizerSettings(pieces=pieces, minimum_count=1))

    tokenizer, remark = train(5000)
    assert 20 < tokenizer.size < 100
    assert (
        remark == f"tokenizer: these transcripts support {tokenizer.size} pieces, not 5000; {tokenizer.size} are used."
    )
    as_many, silent = train(tokenizer.size)
    assert (as_many.digest, silent) == (tokenizer.digest, "")
    assert train(tokenizer.size + 1)[1]


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], [""], ["…", "?!", "  ", "<UNK>", "'"]])
def test_texts_with_nothing_left_are_an_error(texts: list[str], kind: Kind) -> None:
    with pytest.raises(SettingsError, match=r"no transcript has a letter left.*tokenizer\.text"):
        trained(texts=texts, kind=kind)


def test_a_style_is_named_in_the_settings() -> None:
    settings = build(TokenizerSettings, {"text": "cased_punctuated"}, "test")
    assert settings.text == NormaliserSettings(lowercase=False, punctuation=True)
    assert build(TokenizerSettings, settings.model_dump(mode="json"), "test") == settings
    with pytest.raises(SettingsError, match="text is 'fancy'"):
        build(TokenizerSettings, {"text": "fancy"}, "test")


@pytest.mark.case("icefall #135")
@pytest.mark.parametrize(
    ("tokens", "frames"), [([], 0), ([5], 1), ([5, 6], 2), ([5, 5], 3), ([5, 5, 5], 5), ([5, 6, 6, 5, 5, 7], 8)]
)
def test_equal_neighbours_need_a_frame_more(tokens: list[int], frames: int) -> None:
    assert ctc_frames(np.array(tokens, dtype=np.int32)) == frames
