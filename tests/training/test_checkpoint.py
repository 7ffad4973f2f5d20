from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from allears.errors import CheckpointError, SettingsError
from allears.layers.features import FeatureSettings
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import ModelSettings
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.training.checkpoint import (
    Position,
    checkpoint_folder,
    checkpoints,
    load_model,
    load_position,
    newest,
    optimizer_tensors,
    resume,
    set_damaged_aside,
    write,
)
from allears.training.optimizer import LearningRateSettings, OptimizerSettings

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "optimizer": {"learning_rate": {"value": 1e-5}, "betas": [0.9, 0.98]},
    "training": {"epochs": 3},
    "name": None,
}
TOKENIZER = Tokenizer.train(["low mid high"] * 3, TokenizerSettings(pieces=14))[0]


def made(seed: int, width: int = 8) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    encoder = ConvolutionalSettings(width=width, blocks=1, kernel=3)
    features = FeatureSettings(normalisation="utterance")
    model = ModelSettings(features=features, encoder=encoder).build(TOKENIZER.size)
    return model, OptimizerSettings(learning_rate=LearningRateSettings(value=1e-2)).build(model)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    """One step on gradients that depend on the weights and on ``number``."""
    draw = torch.Generator().manual_seed(number)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw) + parameter.detach()
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.add_(number)
    optimizer.step()


def save(run: Path, position: Position, model: torch.nn.Module, optimizer: torch.optim.Optimizer, keep: int) -> None:
    write(run, position, model.state_dict(), optimizer_tensors(model, optimizer), SETTINGS, TOKENIZER, keep)


def saved(run: Path, steps: int, keep: int = 5) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A run with a checkpoint after each of ``steps`` steps."""
    model, optimizer = made(0)
    for number in range(steps):
        step(model, optimizer, number)
        save(run, Position(number + 1, number + 1, "d"), model, optimizer, keep)
    return model, optimizer


def resumed(run: Path, settings: dict[str, Any] = SETTINGS, data: str = "d", width: int = 8) -> Position:
    return resume(run, *made(9, width), settings, data, ("training",))


def test_a_resumed_training_takes_the_same_next_steps(tmp_path: Path) -> None:
    model, optimizer = saved(tmp_path, 3)
    other, its_optimizer = made(9)
    assert resume(tmp_path, other, its_optimizer, SETTINGS, "d", ()) == Position(3, 3, "d")
    for number in range(3, 6):
        step(model, optimizer, number)
        step(other, its_optimizer, number)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_a_run_without_a_checkpoint_stands_at_the_start(tmp_path: Path) -> None:
    assert resumed(tmp_path / "none") == Position(0, 0, "d")
    assert checkpoints(tmp_path / "none") == []
    with pytest.raises(CheckpointError, match=r"there is no run folder .*none"):
        newest(tmp_path / "none")


def test_a_checkpoint_before_the_first_step_can_be_resumed(tmp_path: Path) -> None:
    model, optimizer = made(0)
    save(tmp_path, Position(0, 0, "d"), model, optimizer, 1)
    assert resumed(tmp_path) == Position(0, 0, "d")


def test_nothing_in_a_checkpoint_is_pickled(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    folder = newest(tmp_path)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == [
        "checksums.json",
        "model.safetensors",
        "optimizer.safetensors",
        "settings.yaml",
        "state.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer.model",
    ]
    for name in files:
        path = folder / name
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as tensors:
                assert tensors.keys()
        elif path.suffix == ".json":
            json.loads(path.read_text())
        assert b"torch._utils" not in path.read_bytes()
        assert not path.read_bytes().startswith((b"\x80", b"PK"))
    assert Tokenizer.load(folder / "tokenizer").digest == TOKENIZER.digest


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_names_that_a_wrapper_left_do_not_matter(tmp_path: Path, prefix: str) -> None:
    model, _ = saved(tmp_path, 2)
    for name in ("model.safetensors", "optimizer.safetensors"):
        path = newest(tmp_path) / name
        save_file({prefix + key: value for key, value in load_file(path).items()}, path)
    other, optimizer = made(9)
    assert resume(tmp_path, other, optimizer, SETTINGS, "d", ()).step == 2
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())
    assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


def test_a_wrapped_model_saves_and_loads_bare_names(tmp_path: Path) -> None:
    model, optimizer = made(0)
    wrapper = torch.nn.Module()
    wrapper.module = model
    step(model, optimizer, 0)
    save(tmp_path, Position(1, 1, "d"), wrapper, optimizer, 1)
    assert resumed(tmp_path).step == 1
    inner, its_optimizer = made(9)
    other = torch.nn.Module()
    other.module = inner
    resume(tmp_path, other, its_optimizer, SETTINGS, "d", ())
    assert all(torch.equal(value, inner.state_dict()[name]) for name, value in model.state_dict().items())


def test_another_architecture_is_an_error_that_names_the_differing_keys(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"encoder\.\S+ is \[.*8.*\] instead of \[.*12.*\].* and \d+ more; use"):
        resumed(tmp_path, width=12)
    path = newest(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["extra.weight"] = tensors.pop("output.bias")
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"output\.bias is missing; extra\.weight is unknown; use"):
        load_model(newest(tmp_path), made(9)[0])


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path: Path, name: str, share: float) -> None:
    saved(tmp_path, 1)
    path = newest(tmp_path) / name
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CheckpointError, match=r"is damaged: .*remove"):
        resumed(tmp_path)


def test_an_optimiser_of_another_model_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    path = newest(tmp_path) / "optimizer.safetensors"
    tensors = load_file(path)
    save_file({name.replace("output.", "input."): value for name, value in tensors.items()}, path)
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors belongs to another model"):
        resumed(tmp_path)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"format": 99, "step": 1, "applied": 1, "digest": "d"}, "has format 99, this version reads 1"),
        ({"format": 1, "step": 1}, "is damaged"),
        ({"step": 1, "applied": 1, "digest": "d"}, "is damaged"),
        ([], "is damaged"),
        ("text", "is damaged"),
    ],
)
def test_a_state_of_another_form_is_an_error(tmp_path: Path, state: object, expected: str) -> None:
    saved(tmp_path, 1)
    (newest(tmp_path) / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=expected):
        load_position(newest(tmp_path))


def test_just_the_newest_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 4, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000003", "step-00000004"]
    assert sorted((tmp_path / "checkpoints").iterdir()) == checkpoints(tmp_path)
    assert newest(tmp_path) == checkpoint_folder(tmp_path, 4)


def test_the_newest_is_the_one_of_the_highest_step(tmp_path: Path) -> None:
    for number in (99_999_999, 100_000_000, 7):
        model, optimizer = made(0)
        save(tmp_path, Position(number, 1, "d"), model, optimizer, 5)
    assert newest(tmp_path).name == "step-100000000"


@pytest.mark.case("Lightning #688")
def test_half_a_checkpoint_is_ignored_and_removed_by_the_next(tmp_path: Path) -> None:
    saved(tmp_path, 2)
    half = ["step-00000009.partial", "step-00000001.old.partial", "step-00000010", "step-00000011", "step-00000012"]
    for name in half:
        (tmp_path / "checkpoints" / name).mkdir()
    (tmp_path / "checkpoints" / half[0] / "state.json").write_text("{}")
    (tmp_path / "checkpoints" / half[3] / "state.json").write_text("{}")
    (tmp_path / "checkpoints" / half[4] / "checksums.json").write_bytes(b"\xff{")
    (tmp_path / "checkpoints" / "mine").mkdir()
    set_damaged_aside(tmp_path)
    assert resumed(tmp_path).step == 2
    model, optimizer = made(0)
    save(tmp_path, Position(3, 3, "d"), model, optimizer, 2)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    damaged = ["step-00000010.damaged", "step-00000011.damaged", "step-00000012.damaged"]
    assert left == ["mine", "step-00000002", "step-00000003", *damaged]


def test_what_alters_a_step_must_be_as_before(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    changed = {**SETTINGS, "optimizer": {"learning_rate": {"value": 1e-3}, "betas": [0.9, 0.98]}}
    with pytest.raises(
        SettingsError, match=r"optimizer\.learning_rate\.value is 0\.001, but .* with 1e-05; set it back"
    ):
        resumed(tmp_path, changed)
    assert resumed(tmp_path, {**SETTINGS, "training": {"epochs": 30}}).step == 1
    with pytest.raises(CheckpointError, match="trained on other utterances"):
        resumed(tmp_path, data="other")


def test_a_group_that_is_taken_away_is_a_change(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with pytest.raises(SettingsError, match=r"optimizer is None, but .* was trained with no such setting"):
        resumed(tmp_path, {**SETTINGS, "optimizer": None})
    with pytest.raises(SettingsError, match=r"name is not set, but .* was trained with None"):
        resumed(tmp_path, {key: value for key, value in SETTINGS.items() if key != "name"})
