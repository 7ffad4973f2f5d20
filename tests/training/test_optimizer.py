from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import nn

from allears.errors import SettingsError
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import ModelSettings
from allears.settings import build
from allears.training.optimizer import LearningRateSettings, OptimizerSettings, with_state


def rates(total: int, **how: object) -> list[float]:
    settings = LearningRateSettings.model_validate(how)
    return [settings.at(applied, total) for applied in range(total)]


def test_the_rate_rises_in_a_line_and_falls_as_a_cosine() -> None:
    found = rates(100, value=2.0, warmup=0.1)
    assert found[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert found[10] == 2.0
    assert found[55] == pytest.approx(1.0)
    assert found[99] == pytest.approx(1 + math.cos(math.pi * 89 / 90))
    assert sorted(found[10:], reverse=True) == found[10:]
    settings = LearningRateSettings(value=2.0)
    assert settings.at(100, 100) == settings.at(150, 100) == pytest.approx(0, abs=1e-12)


def test_warm_up_is_bounded_in_steps() -> None:
    found = rates(1000, value=1.0, warmup=0.5, warmup_steps=4, schedule="constant")
    assert found[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert set(found[4:]) == {1.0}


def test_the_root_goes_on_where_warm_up_ends() -> None:
    found = rates(1000, value=1.0, warmup=0.1, schedule="inverse_sqrt")
    assert found[99] == 1.0
    assert found[100] == pytest.approx(math.sqrt(100 / 101))
    assert found[399] == pytest.approx(0.5)


@pytest.mark.parametrize("schedule", ["cosine", "inverse_sqrt", "constant"])
def test_without_warm_up_the_first_step_is_the_highest(schedule: str) -> None:
    for how in ({"warmup": 0.0}, {"warmup_steps": 0}):
        found = rates(10, value=3.0, schedule=schedule, **how)
        assert found[0] == max(found) == 3.0
        assert min(found) > 0
    assert rates(1, value=3.0, schedule=schedule) == [3.0]


def test_a_training_that_only_warms_up_ends_at_the_peak() -> None:
    assert rates(8, value=8.0, warmup=1.0) == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8])


def test_matrices_decay_and_norms_and_biases_do_not() -> None:
    model = ModelSettings(encoder=ConvolutionalSettings(width=8, blocks=1)).build(5)
    optimizer = OptimizerSettings(weight_decay=0.1).build(model)
    decayed, others = optimizer.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {parameter.ndim for parameter in others["params"]} == {1}
    assert min(parameter.ndim for parameter in decayed["params"]) == 2
    both = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(both) == sorted(id(parameter) for parameter in model.parameters())


def test_frozen_weights_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(requires_grad=False)
    optimizer = OptimizerSettings().build(model)
    assert [parameter for group in optimizer.param_groups for parameter in group["params"]] == [*model[1].parameters()]


def test_a_step_is_that_of_adamw() -> None:
    """The first step of Adam is the rate times the sign of the gradient; decay is apart from it."""
    layer = nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(2.0)
    optimizer = OptimizerSettings(weight_decay=0.5, learning_rate=LearningRateSettings(value=0.1)).build(layer)
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert layer.weight.item() == pytest.approx(2 * (1 - 0.1 * 0.5) - 0.1)
    assert layer.bias.item() == pytest.approx(2 - 0.1)


def test_the_compiler_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # to import it is an error now
    optimizer = with_state(OptimizerSettings().build(nn.Linear(1, 1)))
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()


@pytest.mark.parametrize(
    "values",
    [
        {"learning_rate": {"value": 0}},
        {"learning_rate": {"warmup": 1.5}},
        {"learning_rate": {"schedule": "step"}},
        {"betas": [0.9, 1.0]},
        {"betas": [0.9]},
        {"weight_decay": -1},
        {"clip": 0},
    ],
)
def test_values_out_of_range_are_errors_that_name_them(values: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(values))):
        build(OptimizerSettings, values, "optimizer")


@pytest.mark.parametrize(("scale", "value"), [("none", 1e-3), ("linear", 4e-3), ("sqrt", 2e-3)])
def test_the_peak_follows_the_size_of_a_step(scale: str, value: float) -> None:
    settings = LearningRateSettings(value=1e-3, at_step_seconds=100, scale=scale)  # type: ignore[arg-type]
    assert settings.scaled(400).value == pytest.approx(value)
    assert settings.scaled(100).value == pytest.approx(1e-3)
    assert LearningRateSettings(value=1e-3).scaled(400).value == pytest.approx(1e-3)


def test_scaling_from_an_unknown_step_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="scale sqrt needs at_step_seconds"):
        LearningRateSettings(scale="sqrt")


def test_the_guide_s_warm_up_rises_over_a_thousand_steps_and_stays() -> None:
    settings = LearningRateSettings(value=1e-3, warmup=1.0, warmup_steps=1000, schedule="constant")
    rates = [settings.at(step, 5000) / 1e-3 for step in (0, 499, 999, 1000, 4999)]
    assert rates == pytest.approx([0.001, 0.5, 1.0, 1.0, 1.0])
