"""Depthwise convolution over time with channels last.

It sees the same memory as a channels-last picture of height one, which on a CPU is two to three times faster than a
one-dimensional convolution. There the gradient of its weights is a sum over shifted products, for batches of short
utterances three times faster than torch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import AfterValidator, PositiveInt
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd, so that a frame sees as far back as ahead")
    return value


Kernel = Annotated[PositiveInt, AfterValidator(_odd)]
"""Frames that a convolution sees."""


class Depthwise(nn.Module):
    """A convolution over time, each channel by itself: [batch, frames, channels] → the same.

    Args:
        channels: size of the last axis.
        kernel: frames seen, odd.
        causal: see only this frame and those before it.
    """

    def __init__(self, channels: int, kernel: int, causal: bool = False) -> None:
        super().__init__()
        self.past, self.sides = (kernel - 1, 0) if causal else (0, kernel // 2)
        self.convolution = nn.Conv2d(
            channels, channels, (1, kernel), padding=(0, self.sides), groups=channels, bias=False
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``x``; its padding must be zero."""
        if self.past:
            x = nn.functional.pad(x, (0, 0, self.past, 0))
        if x.device.type == "cpu" and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu"):
            convolved: Tensor = _OnCpu.apply(x, self.convolution.weight, self.sides)  # type: ignore[no-untyped-call]
            return convolved
        return _frames(self.convolution(_picture(x)))


class _OnCpu(torch.autograd.Function):
    """The convolution, with a fast gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, sides: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.sides = sides
        return _frames(nn.functional.conv2d(_picture(x), weight, padding=(0, sides), groups=len(weight)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (given,) = gradients
        x, weight = ctx.saved_tensors
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = _frames(
                torch.ops.aten.convolution_backward(
                    _picture(given),
                    _picture(x),
                    weight,
                    None,
                    [1, 1],
                    [0, ctx.sides],
                    [1, 1],
                    False,
                    [0, 0],
                    len(weight),
                    [True, False, False],
                )[0]
            )
        if ctx.needs_input_grad[1]:
            padded = nn.functional.pad(x, (0, 0, ctx.sides, ctx.sides))
            channels, kernel = len(weight), weight.shape[3]
            sums, product = x.new_empty(kernel, channels), x.new_empty(given.shape)
            for place in range(kernel):
                torch.mul(padded[:, place : place + given.shape[1]], given, out=product)
                torch.sum(product.view(-1, channels), 0, out=sums[place])
            of_weight = sums.t().reshape(weight.shape)
        return of_x, of_weight, None


def _picture(x: Tensor) -> Tensor:
    """[batch, frames, channels] as [batch, channels, 1, frames], the same memory."""
    return x.transpose(1, 2).unsqueeze(2)


def _frames(picture: Tensor) -> Tensor:
    """[batch, channels, 1, frames] as [batch, frames, channels], the same memory."""
    return picture.squeeze(2).transpose(1, 2)
