from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from allears.errors import CheckpointError
from allears.layers.features import FeatureSettings
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import CtcModel, ModelSettings
from allears.training.checkpoint import write_tensors
from allears.training.initial import take

if TYPE_CHECKING:
    from pathlib import Path


def model(seed: int, vocabulary: int = 9, width: int = 8, blocks: int = 2) -> CtcModel:
    torch.manual_seed(seed)
    encoder = ConvolutionalSettings(width=width, blocks=blocks, kernel=3)
    return ModelSettings(features=FeatureSettings(normalisation="utterance"), encoder=encoder).build(vocabulary)


def same(one: CtcModel, other: CtcModel, prefix: str) -> bool:
    """Whether all weights under ``prefix`` are equal."""
    names = [name for name, _ in one.named_parameters() if name.startswith(prefix)]
    assert names
    return all(torch.equal(one.get_parameter(name), other.get_parameter(name)) for name in names)


@pytest.fixture
def donor(tmp_path: Path) -> CtcModel:
    made = model(1)
    write_tensors(made.state_dict(), tmp_path / "model.safetensors")
    return made


def test_all_of_a_model_of_the_same_vocabulary_is_taken(donor: CtcModel, tmp_path: Path) -> None:
    mine = model(2)
    said = take(mine, tmp_path, "whole", same_vocabulary=True)
    assert same(mine, donor, "")
    assert said.startswith(f"{len(mine.state_dict())} of {len(mine.state_dict())} tensors")


@pytest.mark.parametrize(
    ("part", "vocabulary", "equal"), [("encoder", 9, True), ("whole", 9, False), ("whole", 5, False)]
)
def test_another_vocabulary_gets_a_new_output_layer(
    donor: CtcModel, tmp_path: Path, part: str, vocabulary: int, equal: bool
) -> None:
    mine = model(2, vocabulary)
    before = mine.output.weight.clone()
    said = take(mine, tmp_path, part, equal)  # type: ignore[arg-type]
    assert same(mine, donor, "encoder.")
    assert torch.equal(mine.output.weight, before)
    assert "new: output.weight, output.bias; not used: output.bias, output.weight" in said


def test_what_fits_of_a_smaller_encoder_is_taken_and_the_rest_named(donor: CtcModel, tmp_path: Path) -> None:
    mine = model(2, blocks=3)
    said = take(mine, tmp_path, "encoder", same_vocabulary=False)
    assert same(mine, donor, "encoder.blocks.1.")
    assert "new: encoder.blocks.2." in said


def test_a_model_with_nothing_in_common_is_an_error(donor: CtcModel, tmp_path: Path) -> None:
    write_tensors(
        {name: value for name, value in donor.state_dict().items() if name.startswith("output.")},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(CheckpointError, match=r"init_from: .* an encoder that does not fit this model; use the"):
        take(model(2), tmp_path, "whole", same_vocabulary=True)
