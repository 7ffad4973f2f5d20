"""Gradients add along one tree: real processes over gloo give the bits of a lone one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from allears.training.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.forked import Forked

PLACES = 8
SIZES = (1, 2, 3, 4, 5, 8)
EMPTY: dict[str, list[int]] = {"full": [], "gaps": [3, 6, 7]}
RANK = """
import json, sys
import torch, torch.distributed as dist
from tests.training import test_engine as test
from allears.loading.plan import subtrees
from allears.training import engine
from allears.training.reduction import build_reduce
from allears.world import World

rank, store = int(sys.argv[1]), sys.argv[2]
engine.BUCKET_BYTES = 1 << 10  # many buckets
torch.set_num_threads(1)
for size in test.SIZES:
    if rank >= size:
        continue
    world = World(rank, size, rank, size, torch.device("cpu"))
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}-{size}", rank=rank, world_size=size)
    for reduction in ("exact", "fast"):
        for name, empty in test.EMPTY.items():
            reduce = build_reduce(reduction, world, test.PLACES) if size > 1 else None
            one = test.model()
            made = engine.Engine(one, reduce, size, tree=reduction == "exact")
            places = subtrees(test.PLACES, size)[rank]
            bits = [test.gradients(made, one, places, step, empty) for step in range(3)]
            print(json.dumps([size, reduction, name, bits]))
    if size > 1:
        dist.destroy_process_group()
"""


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for width in (17, 17, 17)), torch.nn.Conv2d(3, 5, 3))


def gradients(engine: Engine, one: torch.nn.Module, places: range, step: int, empty: list[int]) -> str:
    """Digest of the gradients of one step; some places are empty, and the convolution takes part just in some."""
    import hashlib

    engine.begin()
    for place in places:
        engine.clean(final=place == places[-1])
        if place not in empty:
            torch.manual_seed(1000 * step + place)
            total = one[:3](torch.randn(5, 17)).square().sum()  # type: ignore[index]
            if place % 3 == 1:
                total = total + one[3](torch.randn(1, 3, 7, 7)).square().sum()  # type: ignore[index]
            total.backward()
        engine.done()
    engine.finish()
    found = hashlib.sha256()
    for parameter in one.parameters():
        assert parameter.grad is not None
        assert parameter.grad.stride() == parameter.stride()
        found.update(parameter.grad.contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.fixture(scope="module")
def bits(
    forked: Callable[..., Forked], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, str, str], list[str]]:
    """(processes, reduction, which places are empty) → digests of three steps, which all ranks must have alike."""
    store = tmp_path_factory.mktemp("stores") / "store"
    ranks = [forked(rank, store, code=RANK) for rank in range(max(SIZES))]
    found: dict[tuple[int, str, str], list[str]] = {}
    for rank in ranks:
        assert rank.wait(120) == 0, rank.stderr.read_text()
        for line in rank.stdout.read_text().splitlines():
            size, reduction, name, digests = json.loads(line)
            assert found.setdefault((size, reduction, name), digests) == digests
    return found


@pytest.mark.case("NeMo #13744")
@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("size", SIZES[1:])
def test_the_bits_do_not_depend_on_the_number_of_processes(bits: dict[Any, list[str]], size: int, name: str) -> None:
    assert bits[size, "exact", name] == bits[1, "exact", name]
    assert len(set(bits[1, "exact", name])) == 3


def test_the_backend_s_own_sum_has_other_bits(bits: dict[Any, list[str]]) -> None:
    assert bits[8, "fast", "full"] != bits[1, "exact", "full"]
    assert bits[4, "fast", "full"] != bits[1, "fast", "full"]


def test_another_reduction_can_be_used_from_any_step_on() -> None:
    one = model()
    engine = Engine(one, None, 1, tree=True)
    found = []
    for tree in (True, False, True, False):
        engine.use(None, tree)
        found.append(gradients(engine, one, range(PLACES), 0, EMPTY["gaps"]))
    assert found[0] == found[2]
    assert found[1] == found[3] != found[0]


def test_alone_the_sum_is_that_of_autograd() -> None:
    one, plain = model(), model()
    engine = Engine(one, None, 1, tree=True)
    gradients(engine, one, range(PLACES), 0, [])
    for place in range(PLACES):
        torch.manual_seed(place)
        total = plain[:3](torch.randn(5, 17)).square().sum()  # type: ignore[index]
        if place % 3 == 1:
            total = total + plain[3](torch.randn(1, 3, 7, 7)).square().sum()  # type: ignore[index]
        total.backward()
    for mine, theirs in zip(one.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_frozen_weights_have_no_gradient() -> None:
    one = model()
    one.get_parameter("0.weight").requires_grad_(False)
    engine = Engine(one, None, 1, tree=True)
    engine.begin()
    engine.clean(final=True)
    engine.done()
    engine.finish()
    assert one.get_parameter("0.weight").grad is None
    assert all(not p.grad.any() for p in one.parameters() if p.grad is not None)
