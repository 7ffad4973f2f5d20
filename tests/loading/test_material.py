from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
import torch

from allears.corpora.find import find
from allears.errors import PlanError
from allears.loading.augment import AugmentSettings
from allears.loading.collection import SourceSettings
from allears.loading.material import Material, gather
from allears.loading.plan import PlanSettings
from allears.settings import build
from allears.shards.prepare import Corpus, prepare
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TEXTS = ["low mid", "mid high", "low mid high", "высоко", "high low café", "mid!", "low low low low low"]


@pytest.fixture(scope="module")
def dataset_of_scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second of noise for each of `TEXTS`."""
    folder = tmp_path_factory.mktemp("scripts")
    corpus = folder / "corpus"
    corpus.mkdir()
    draw = np.random.default_rng(0)
    for number in range(len(TEXTS)):
        soundfile.write(corpus / f"u{number}.wav", draw.normal(0, 3000, 16_000).astype(np.int16), 16_000)
    lines = [f"u{number}.wav\t{text}\n" for number, text in enumerate(TEXTS)]
    (corpus / "list.tsv").write_text("".join(lines), encoding="utf-8")
    found = find(corpus / "list.tsv", None)
    prepare(Corpus(corpus, found.layout, found.utterances, found.rejections), folder / "dataset", processes=1)
    return folder / "dataset"


def gathered(
    dataset: Path, folder: Path, frames: int = 100, speed: tuple[float, ...] = (), seconds: float = 8, **tokenizer: Any
) -> tuple[Material, list[str]]:
    """What is trained on where the model has ``frames`` frames a second, and what was said."""

    def output_frames(samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return samples * frames // 16_000

    said: list[str] = []
    plan = PlanSettings(step_seconds=seconds, micro_batches=1)
    settings = build(TokenizerSettings, {"pieces": 16, **tokenizer}, "test")
    source = SourceSettings(dataset=str(dataset))
    material = gather(
        [source],
        {"v": source},
        plan,
        settings,
        output_frames,
        0,
        AugmentSettings(speed=speed),
        folder,
        None,
        World(0, 1, 0, 1, torch.device("cpu")),
        said.append,
    )
    return material, said


def ids(material: Material) -> list[str]:
    return [material.collection.id(n) for n in range(len(material.collection))]


def test_mostly_unknown_texts_are_left_out_and_the_others_kept(dataset_of_scripts: Path, tmp_path: Path) -> None:
    made, _ = Tokenizer.train(["low mid high"] * 2, TokenizerSettings(kind="characters"))
    made.save(tmp_path / "made")
    material, said = gathered(dataset_of_scripts, tmp_path, path=str(tmp_path / "made"))
    assert ids(material) == ["u0", "u1", "u2", "u4", "u5", "u6"]
    assert len(material.validation["v"]) == len(TEXTS)  # what is only scored is never tokenised
    (strange, left_out) = said
    assert strange.startswith("2 of 7 utterances hold characters that have no token of their own")
    assert "the unknown token; the most frequent are 'о' 2 times" in strange
    assert left_out.startswith("1 of 7 utterances are left out: 1 are of more unknown tokens than tokenizer.most_unk")
    assert "such as u3;" in left_out
    material, said = gathered(dataset_of_scripts, tmp_path, path=str(tmp_path / "made"), most_unknown=0.2)
    assert ids(material) == ["u0", "u1", "u2", "u5", "u6"]
    assert "such as u3, u4;" in said[-1]
    material, said = gathered(dataset_of_scripts, tmp_path, path=str(tmp_path / "made"), most_unknown=1)
    assert len(material.collection) == len(TEXTS)
    assert len(said) == 1


def test_another_script_is_left_out_by_pieces_too(dataset_of_scripts: Path, tmp_path: Path) -> None:
    made, _ = Tokenizer.train(["low mid high"] * 2, TokenizerSettings(pieces=16))
    made.save(tmp_path / "made")
    material, _ = gathered(dataset_of_scripts, tmp_path, path=str(tmp_path / "made"))
    assert "u3" not in ids(material)
    assert "u4" in ids(material)


def test_bytes_reject_nothing(dataset_of_scripts: Path, tmp_path: Path) -> None:
    made, _ = Tokenizer.train(["low mid high"] * 2, TokenizerSettings(pieces=270, byte_fallback=True))
    made.save(tmp_path / "made")
    material, said = gathered(dataset_of_scripts, tmp_path, path=str(tmp_path / "made"))
    assert len(material.collection) == len(TEXTS)
    assert len(said) == 1
    assert "become bytes" in said[0]


def test_a_tokenizer_of_the_data_itself_says_what_is_rare(dataset_of_scripts: Path, tmp_path: Path) -> None:
    _, said = gathered(dataset_of_scripts, tmp_path, kind="words")
    assert "2 of 5 words occur fewer than 2 times" in said[0]
    assert "hold words that have no token of their own" in said[1]
    assert "'café' 1 times, 'высоко' 1 times" in said[1]


@pytest.mark.case("icefall #135")
def test_what_ctc_cannot_align_is_named_with_the_remedy(dataset_of_scripts: Path, tmp_path: Path) -> None:
    material, said = gathered(dataset_of_scripts, tmp_path, frames=12, kind="characters", minimum_count=1)
    assert ids(material) == ["u0", "u1", "u2", "u3", "u5"]
    assert "2 are of more tokens than the model has frames" in said[-1]
    assert "such as u4, u6" in said[-1]
    assert "fewer and longer tokens" in said[-1]
    # A repeated word needs a blank between: five tokens, nine frames.
    assert "u6" in ids(gathered(dataset_of_scripts, tmp_path, frames=9, kind="words", minimum_count=1)[0])
    assert "u6" not in ids(gathered(dataset_of_scripts, tmp_path, frames=8, kind="words", minimum_count=1)[0])


@pytest.mark.case("icefall #135")
def test_what_could_be_used_at_some_speeds_only_is_used_in_no_epoch(dataset_of_scripts: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"kind": "words", "minimum_count": 1}
    # u6 needs nine frames: it has them at the speed of 1, not at that of 1.1.
    assert "u6" in ids(gathered(dataset_of_scripts, tmp_path, frames=9, speed=(0.9, 1.0), **how)[0])
    material, said = gathered(dataset_of_scripts, tmp_path, frames=9, speed=(0.9, 1.0, 1.1), **how)
    assert "u6" not in ids(material)
    assert "more tokens than the model has frames" in said[-1]
    # A second becomes 1.11 s at the speed of 0.9.
    assert gathered(dataset_of_scripts, tmp_path, speed=(1.1,), seconds=1.0, **how)[0].plans.steps_per_epoch == 7
    with pytest.raises(PlanError, match=r"7 are longer at the slowest augment.speed than a micro-batch \(1 s"):
        gathered(dataset_of_scripts, tmp_path, speed=(0.9, 1.1), seconds=1.0, **how)


def test_nothing_left_is_an_error(dataset_of_scripts: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none of the 7 utterances .* 7 are of more tokens .*such as u0, u1, u2"):
        gathered(dataset_of_scripts, tmp_path, frames=2, kind="characters", minimum_count=1)
    made, _ = Tokenizer.train(["你好"] * 2, TokenizerSettings(kind="characters"))
    made.save(tmp_path / "made")
    with pytest.raises(PlanError, match="7 are of more unknown tokens"):
        gathered(dataset_of_scripts, tmp_path, path=str(tmp_path / "made"))
