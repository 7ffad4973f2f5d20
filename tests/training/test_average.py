from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from allears.errors import CheckpointError
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import ModelSettings
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.training.average import average_folder, chosen, write_average
from allears.training.checkpoint import (
    Position,
    best,
    checkpoints,
    load_model,
    load_position,
    optimizer_tensors,
    read_tensors,
    write,
)
from allears.training.optimizer import OptimizerSettings

if TYPE_CHECKING:
    from pathlib import Path

TOKENIZER = Tokenizer.train(["low mid high"] * 3, TokenizerSettings(pieces=14))[0]
SETTINGS: dict[str, Any] = {"seed": 1}


def saved(
    run: Path,
    *scores: float | None,
    keep: int = 9,
    keep_best: int = 0,
    width: int = 8,
    scored: str = "wer",
    first: int = 1,
) -> torch.nn.Module:
    """A run with a checkpoint for each score; all its weights are the number of the step."""
    encoder = ConvolutionalSettings(width=width, blocks=1, kernel=3)
    model = ModelSettings(encoder=encoder).build(TOKENIZER.size)
    optimizer = OptimizerSettings().build(model)
    for step, score in enumerate(scores, first):
        with torch.no_grad():
            for value in (*model.parameters(), *model.buffers()):
                if value.is_floating_point():
                    value.fill_(step)
        write(
            run,
            Position(step, step, "d", score=score, scored=scored),
            model.state_dict(),
            optimizer_tensors(model, optimizer),
            SETTINGS,
            TOKENIZER,
            keep,
            keep_best,
        )
    return model


def names(paths: list[Path]) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in paths]


def test_the_best_stay_besides_the_newest(tmp_path: Path) -> None:
    saved(tmp_path, 0.5, 0.2, None, 0.3, 0.6, 0.7, keep=2, keep_best=2)
    assert names(checkpoints(tmp_path)) == [2, 4, 5, 6]
    assert names(best(tmp_path, 3)) == [2, 4, 5]


def test_the_average_is_the_mean_and_keeps_what_a_checkpoint_needs(tmp_path: Path) -> None:
    model = saved(tmp_path, 0.5, 0.2, 0.3)
    place = average_folder(tmp_path)
    write_average(place, best(tmp_path, 2))
    assert all((value == 2.5).all() for value in read_tensors(place / "model.safetensors").values())
    load_model(place, model)
    assert Tokenizer.load(place / "tokenizer").digest == TOKENIZER.digest
    assert load_position(place) == Position(3, 3, "d")


def test_a_run_is_its_average_else_its_best_else_its_newest(tmp_path: Path) -> None:
    saved(tmp_path / "plain", None, None)
    assert names([chosen(tmp_path / "plain")]) == [2]
    saved(tmp_path / "scored", 0.5, 0.2, None)
    assert names([chosen(tmp_path / "scored")]) == [2]
    place = average_folder(tmp_path / "scored")
    write_average(place, checkpoints(tmp_path / "scored"))
    assert chosen(tmp_path / "scored") == place
    assert chosen(place) == place
    one = checkpoints(tmp_path / "scored")[0]
    assert chosen(one) == one


def test_nothing_to_average_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint is there for .*average; name the folder of a run"):
        write_average(average_folder(tmp_path), [])
    with pytest.raises(CheckpointError, match="holds no complete checkpoint"):
        chosen(tmp_path)


def test_checkpoints_of_different_architectures_are_not_averaged(tmp_path: Path) -> None:
    saved(tmp_path / "a", None)
    saved(tmp_path / "b", None, width=12)
    both = [*checkpoints(tmp_path / "a"), *checkpoints(tmp_path / "b")]
    with pytest.raises(CheckpointError, match=r"is of another architecture than .*; average checkpoints of one run"):
        write_average(average_folder(tmp_path / "a"), both)
    assert not average_folder(tmp_path / "a").exists()


def test_an_average_does_not_stand_for_a_training_that_went_on(tmp_path: Path) -> None:
    saved(tmp_path, 0.5, 0.4)
    write_average(average_folder(tmp_path), checkpoints(tmp_path))
    assert chosen(tmp_path) == average_folder(tmp_path)
    saved(tmp_path, 0.3, first=3)
    assert names([chosen(tmp_path)]) == [3]


def test_scores_of_different_kinds_are_not_compared(tmp_path: Path) -> None:
    saved(tmp_path, 0.1, 0.2, scored="cer of a")
    saved(tmp_path, 0.6, 0.5, scored="wer of a", first=3)
    assert names(best(tmp_path, 4)) == [4, 3]


def test_a_damaged_old_checkpoint_does_not_stand_in_the_way(tmp_path: Path) -> None:
    saved(tmp_path, 0.1, 0.2, 0.3)
    (checkpoints(tmp_path)[0] / "state.json").write_text("{")
    assert names(best(tmp_path, 3)) == [2, 3]
