from __future__ import annotations

import pytest
import torch

from allears.training.precision import LARGEST, SMALLEST, STEADY_STEPS, LossScale, autocast, resolved

CPU = torch.device("cpu")


def test_auto_is_float32_on_a_cpu() -> None:
    assert resolved("auto", CPU) == "float32"
    assert resolved("bf16", CPU) == "bf16"


@pytest.mark.parametrize(
    ("precision", "kind"), [("float32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_run_in_the_precision_that_is_named(precision: str, kind: torch.dtype) -> None:
    with autocast(precision, CPU):  # type: ignore[arg-type]
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == kind


def test_an_overflow_halves_the_scale_down_to_a_bound() -> None:
    scale = LossScale("fp16", 2.0**-12)
    assert [scale.overflowed() for _ in range(3)] == [True, True, False]
    assert scale.value == SMALLEST


def test_a_long_time_without_overflow_doubles_it_up_to_a_bound() -> None:
    scale = LossScale("fp16", LARGEST / 2, STEADY_STEPS - 1)
    scale.held()
    assert (scale.value, scale.steady) == (LARGEST, 0)
    for _ in range(STEADY_STEPS):
        scale.held()
    assert scale.value == LARGEST


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_just_float16_is_scaled(precision: str) -> None:
    scale = LossScale(precision, 2.0**16)  # type: ignore[arg-type]
    scale.held()
    assert (scale.value, scale.steady, scale.overflowed()) == (1.0, 0, False)
