from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from allears.errors import CheckpointError
from allears.files import write_json, write_yaml
from allears.layers.features import FeatureSettings
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import CtcModel, ModelSettings
from allears.settings import build
from allears.training.checkpoint import write_tensors
from allears.training.checksums import seal
from allears.training.initial import take

if TYPE_CHECKING:
    from pathlib import Path


SETTINGS: dict[str, Any] = {"features": {"kind": "kaldi_fbank"}, "encoder": {"heads": 2}}


def model(
    seed: int, vocabulary: int = 9, width: int = 8, blocks: int = 2, normalisation: str = "utterance"
) -> CtcModel:
    torch.manual_seed(seed)
    encoder = ConvolutionalSettings(width=width, blocks=blocks, kernel=3)
    return ModelSettings(
        features=build(FeatureSettings, {"normalisation": normalisation}, "test"), encoder=encoder
    ).build(vocabulary)


def same(one: CtcModel, other: CtcModel, prefix: str) -> bool:
    """Whether all weights under ``prefix`` are equal."""
    names = [name for name, _ in one.named_parameters() if name.startswith(prefix)]
    assert names
    return all(torch.equal(one.get_parameter(name), other.get_parameter(name)) for name in names)


def whole(folder: Path) -> None:
    """Let a folder with weights and settings be a whole checkpoint."""
    write_json(folder / "state.json", {})
    write_json(folder / "tokenizer" / "tokenizer.json", {})
    seal(folder)


@pytest.fixture
def donor(tmp_path: Path) -> CtcModel:
    made = model(1)
    write_tensors(made.state_dict(), tmp_path / "model.safetensors")
    write_yaml(tmp_path / "settings.yaml", {"model": SETTINGS})
    whole(tmp_path)
    return made


def test_all_of_a_model_of_the_same_vocabulary_is_taken(donor: CtcModel, tmp_path: Path) -> None:
    mine = model(2)
    said = take(mine, tmp_path, "whole", True, SETTINGS)
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
    said = take(mine, tmp_path, part, equal, SETTINGS)  # type: ignore[arg-type]
    assert same(mine, donor, "encoder.")
    assert torch.equal(mine.output.weight, before)
    assert "new: output.weight, output.bias; not used: output.bias, output.weight" in said


def test_what_fits_of_a_smaller_encoder_is_taken_and_the_rest_named(donor: CtcModel, tmp_path: Path) -> None:
    mine = model(2, blocks=3)
    said = take(mine, tmp_path, "encoder", False, SETTINGS)
    assert same(mine, donor, "encoder.blocks.1.")
    assert "new: encoder.blocks.2." in said


def test_a_model_with_nothing_in_common_is_an_error(donor: CtcModel, tmp_path: Path) -> None:
    write_tensors(
        {name: value for name, value in donor.state_dict().items() if name.startswith("output.")},
        tmp_path / "model.safetensors",
    )
    whole(tmp_path)
    with pytest.raises(CheckpointError, match=r"init_from: .* an encoder that does not fit this model; use the"):
        take(model(2), tmp_path, "whole", True, SETTINGS)


def test_statistics_of_other_features_are_not_taken_and_differences_are_named(tmp_path: Path) -> None:
    theirs = model(1, normalisation="global")
    theirs.frontend.set_statistics(torch.ones(80), torch.ones(80))
    write_tensors(theirs.state_dict(), tmp_path / "model.safetensors")
    write_yaml(tmp_path / "settings.yaml", {"model": SETTINGS})
    whole(tmp_path)
    mine = model(2, normalisation="global")
    said = take(mine, tmp_path, "whole", True, {"features": {"kind": "log_mel_400_160"}, "encoder": {"heads": 4}})
    assert mine.frontend.lacks_statistics()
    assert "model.features.kind was 'kaldi_fbank', is 'log_mel_400_160'; model.encoder.heads was 2, is 4" in said
    take(mine, tmp_path, "encoder", False, SETTINGS)
    assert not mine.frontend.lacks_statistics()
