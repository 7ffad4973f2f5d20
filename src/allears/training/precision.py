"""In which numbers a step is computed: float32, or half precision under autocast, float16 with a scaled loss.

Weights, gradients, optimiser, normalisation, features and losses are float32 in all of them.
Source: Micikevicius et al., "Mixed Precision Training", ICLR 2018.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

Precision = Literal["auto", "float32", "bf16", "fp16"]
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

SMALLEST, LARGEST = 2.0**-14, 2.0**24
STEADY_STEPS = 2000
"""Steps without overflow after which the loss is scaled twice as much."""


def resolved(precision: Precision, device: torch.device) -> Precision:
    """``auto`` made definite: bf16 where a CUDA device has it, else fp16; float32 on a CPU."""
    if precision != "auto":
        return precision
    if device.type != "cuda":
        return "float32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """The context in which a definite ``precision`` runs forward."""
    if precision not in _TYPES:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=_TYPES[precision])


class LossScale:
    """By how much a loss is multiplied before backward, so that float16 gradients do not underflow; a power of two.

    It is halved by an overflow and doubled after `STEADY_STEPS` steps without one.

    Args:
        precision: only fp16 is scaled.
        value: what it starts with.
        steady: steps since the last change.
    """

    def __init__(self, precision: Precision, value: float, steady: int = 0) -> None:
        self.scales = precision == "fp16"
        self.value = value if self.scales else 1.0
        self.steady = steady

    def overflowed(self) -> bool:
        """Halve after an overflow; false where there is nothing left to halve."""
        if not self.scales or self.value <= SMALLEST:
            return False
        self.value /= 2.0
        self.steady = 0
        return True

    def held(self) -> None:
        """Count a step without overflow."""
        self.steady += self.scales
        if self.steady >= STEADY_STEPS:
            self.value = min(self.value * 2.0, LARGEST)
            self.steady = 0
