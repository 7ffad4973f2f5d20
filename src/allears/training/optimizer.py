"""AdamW and its learning rate, a pure function of the number of applied steps."""

from __future__ import annotations

import math
from inspect import unwrap
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import torch
from pydantic import Field, PositiveFloat, field_validator, model_validator

from allears.settings import Settings

if TYPE_CHECKING:
    from torch import nn


Decay = Annotated[float, Field(ge=0, lt=1)]


class _AdamW(torch.optim.AdamW):
    """AdamW without what torch.compile needs in its methods, since to load the compiler takes each process seconds.

    Measured at each start of a training: 2.3 s of a core and 150 MB of memory a process.
    """

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class LearningRateSettings(Settings):
    """The learning rate over a training.

    ``min(step / 1000, 1)`` times a rate is ``{warmup: 1, warmup_steps: 1000, schedule: constant}``.

    Attributes:
        value: its peak.
        at_step_seconds: the size of a step, in seconds of audio, that ``value`` was found for; none: the plan's own.
        scale: what the peak becomes for steps of another size: ``linear`` in it (Goyal et al., 2017), its ``sqrt``
            (Krizhevsky, 2014), or ``none``.
        warmup: share of the training over which it rises linearly from zero.
        warmup_steps: upper bound of that, in steps.
        schedule: ``cosine`` falls to zero at the end; ``inverse_sqrt`` falls with the root of the step; ``constant``.
    """

    value: PositiveFloat = 1e-3
    at_step_seconds: PositiveFloat | None = None
    scale: Literal["none", "linear", "sqrt"] = "none"
    warmup: float = Field(default=0.1, ge=0, le=1)
    warmup_steps: int = Field(default=10_000, ge=0)
    schedule: Literal["cosine", "inverse_sqrt", "constant"] = "cosine"

    @model_validator(mode="after")
    def _scaled_from_somewhere(self) -> Self:
        if self.scale != "none" and self.at_step_seconds is None:
            raise ValueError(f"scale {self.scale} needs at_step_seconds, the step size that value was found for")
        return self

    def scaled(self, step_seconds: float) -> LearningRateSettings:
        """These settings with the peak for steps of ``step_seconds``."""
        ratio = step_seconds / (self.at_step_seconds or step_seconds)
        power = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[self.scale]
        return self.model_copy(update={"value": self.value * ratio**power, "at_step_seconds": step_seconds})

    def at(self, applied: int, total: int) -> float:
        """The rate of the next step after ``applied`` steps, of ``total`` planned ones."""
        rising = min(math.ceil(self.warmup * total), self.warmup_steps)
        if applied < rising:
            return self.value * (applied + 1) / rising
        if self.schedule == "constant":
            return self.value
        if self.schedule == "inverse_sqrt":
            return self.value * math.sqrt(max(rising, 1) / (applied + 1))
        done = (applied - rising) / max(total - rising, 1)
        return self.value * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))


class OptimizerSettings(Settings):
    """AdamW (Loshchilov, Hutter, ICLR 2019).

    Attributes:
        learning_rate: over the training.
        betas: decay of the two moments.
        weight_decay: of matrices; norms and biases have none.
        clip: bound of the global gradient norm.
    """

    learning_rate: LearningRateSettings = LearningRateSettings()
    betas: tuple[Decay, Decay] = (0.9, 0.98)
    weight_decay: float = Field(default=1e-3, ge=0)
    clip: PositiveFloat = 5.0

    @field_validator("learning_rate", mode="before")
    @classmethod
    def _just_a_number(cls, value: Any) -> Any:
        """``learning_rate: 1e-3`` means its peak."""
        return {"value": value} if isinstance(value, float | int | str) else value

    def build(self, model: nn.Module) -> torch.optim.AdamW:
        """The optimiser of ``model``."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        decayed = [parameter for parameter in parameters if parameter.ndim > 1]
        others = [parameter for parameter in parameters if parameter.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        return _AdamW(
            groups,
            lr=self.learning_rate.value,
            betas=self.betas,
            weight_decay=self.weight_decay,
            fused=True,
        )


def with_state(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimiser with the state that its first step would make, all zeros; no parameter changes, gradients go.

    So all that a training needs of memory is there before its first step.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()
    optimizer.zero_grad()
    return optimizer
