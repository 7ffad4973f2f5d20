from __future__ import annotations

import pytest
import torch

from allears.layers.convolution import Depthwise

CHANNELS = 6


@pytest.mark.parametrize("frames", [1, 3, 20])
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients_are_those_of_a_one_dimensional_convolution(causal: bool, frames: int) -> None:
    torch.manual_seed(0)
    ours = Depthwise(CHANNELS, 5, causal).double()
    theirs = torch.nn.Conv1d(CHANNELS, CHANNELS, 5, groups=CHANNELS, bias=False).double()
    with torch.no_grad():
        theirs.weight.copy_(ours.convolution.weight.squeeze(2))
    x = torch.randn(3, frames, CHANNELS, dtype=torch.float64, requires_grad=True)
    again = x.detach().clone().requires_grad_()
    wanted = theirs(torch.nn.functional.pad(again.transpose(1, 2), (4, 0) if causal else (2, 2))).transpose(1, 2)
    found = ours(x)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn_like(found)
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    torch.testing.assert_close(x.grad, again.grad)
    assert ours.convolution.weight.grad is not None
    assert theirs.weight.grad is not None
    torch.testing.assert_close(ours.convolution.weight.grad.squeeze(2), theirs.weight.grad)
