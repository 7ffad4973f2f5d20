from __future__ import annotations

import pytest
import torch

from allears.layers.dropout import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.999])
def test_elements_are_dropped_by_chance_and_the_mean_is_kept(probability: float) -> None:
    torch.manual_seed(0)
    found = Dropout(probability)(torch.ones(1000, 1001))
    dropped = (found == 0).float()
    spread = (probability * (1 - probability)) ** 0.5
    assert abs(dropped.mean() - probability) < 5 * spread / 1000 + 1e-5
    torch.testing.assert_close(found[found != 0].unique(), torch.tensor([1 / (1 - probability)]))
    # Neighbours of every distance that shares a draw, and rows, know nothing of one another.
    for one, other in [*((dropped[:, :-lag], dropped[:, lag:]) for lag in (1, 2, 3, 4)), (dropped[:-1], dropped[1:])]:
        together = ((one - probability) * (other - probability)).mean() / spread**2
        assert abs(together) < 6 / 1000


def test_a_seed_gives_the_same_elements() -> None:
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(Dropout(0.3)(torch.ones(5, 7)))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_gradient_is_dropped_alike() -> None:
    x = torch.ones(30, 7, requires_grad=True)
    found = Dropout(0.3)(x)
    found.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, found)


def test_nothing_is_dropped_in_evaluation_or_at_zero() -> None:
    x = torch.randn(3, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert Dropout(0.5)(torch.ones(0, 5)).shape == (0, 5)
    assert Dropout(0.5)(torch.ones(3, 5, dtype=torch.bfloat16)).dtype == torch.bfloat16
