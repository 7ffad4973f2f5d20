"""Epochs, planned once on a machine, in the background, and what their micro-batches hold."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allears.errors import DataError
from allears.loading.augment import AugmentSettings
from allears.loading.collection import Collection, SourceSettings
from allears.loading.epochs import EpochPlans
from allears.loading.example import ExampleReader
from allears.loading.loader import Loader, LoaderSettings
from allears.loading.plan import PlanSettings, plan_epoch
from allears.loading.tokens import token_counts
from allears.text.tokenizer import Tokenizer, TokenizerSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIX = PlanSettings(step_seconds=24, micro_batches=4)
SPEEDS = AugmentSettings(speed=(0.9, 1.0, 1.1))


@pytest.fixture(scope="module")
def collection(dataset: Path) -> Collection:
    whole = Collection.open([SourceSettings(dataset=str(dataset))])
    return whole.only(np.arange(len(whole)) % 7 != 3)


@pytest.fixture(scope="module")
def tokenizer(collection: Collection) -> Tokenizer:
    return Tokenizer.train([collection.text(n) for n in range(len(collection))], TokenizerSettings(pieces=16))[0]


@pytest.fixture
def plans(collection: Collection, tokenizer: Tokenizer) -> Callable[..., EpochPlans]:
    def make(shared: Path | None = None, settings: PlanSettings = SIX, seed: int = 3) -> EpochPlans:
        return EpochPlans(collection, token_counts(collection, tokenizer), settings, seed, SPEEDS, shared)

    return make


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that are planned, one after the other."""
    seen: list[int] = []

    def spy(lengths: Any, settings: Any, seed: int, epoch: int, steps: int) -> Any:
        seen.append(epoch)
        return plan_epoch(lengths, settings, seed, epoch, steps)

    monkeypatch.setattr("allears.loading.epochs.plan_epoch", spy)
    return seen


def same(one: EpochPlans, other: EpochPlans, number: int) -> bool:
    first, second = one.epoch(number), other.epoch(number)
    figures = ("samples", "longest", "tokens", "most_tokens")
    return (
        np.array_equal(first.plan.utterances, second.plan.utterances)
        and np.array_equal(first.plan.offsets, second.plan.offsets)
        and all(np.array_equal(getattr(first, name), getattr(second, name)) for name in figures)
    )


def test_figures_are_those_of_each_micro_batch(plans: Callable[..., EpochPlans], collection: Collection) -> None:
    made = plans()
    for number in (0, 1):
        epoch = made.epoch(number)
        for at in range(len(epoch.plan.offsets) - 1):
            members = epoch.plan.micro_batch(*divmod(at, SIX.micro_batches))
            lengths, tokens = made.lengths(members, number), made.token_counts(members)
            figures = (epoch.samples, epoch.longest, epoch.tokens, epoch.most_tokens)
            found = [int(of[at : at + 1].item()) for of in figures]
            assert found == [lengths.sum(), lengths.max(initial=0), tokens.sum(), tokens.max(initial=0)]
        assert np.array_equal(np.sort(epoch.plan.utterances), np.arange(len(collection)))


def test_a_plan_is_made_once_and_is_the_one_that_each_would_make(
    plans: Callable[..., EpochPlans], planned: list[int], tmp_path: Path
) -> None:
    alone = plans()
    many = [plans(tmp_path / "plan") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: one.epoch(1), many))
    assert planned == [1]
    assert all(same(one, alone, 1) for one in many)
    assert same(plans(tmp_path / "plan"), alone, 1)  # one that comes later, as a run that is started again
    assert planned == [1, 1]


def test_another_plan_is_another_file_and_far_epochs_are_removed(
    plans: Callable[..., EpochPlans], planned: list[int], tmp_path: Path
) -> None:
    shared = tmp_path / "plan"
    for number in range(3):
        plans(shared).epoch(number)
    assert [path.name[:12] for path in sorted(shared.glob("epoch-*"))] == ["epoch-000001", "epoch-000002"]
    other = plans(shared, seed=4)
    assert same(other, plans(seed=4), 2)
    assert not same(other, plans(), 2)
    assert planned[:4] == [0, 1, 2, 2]


def test_where_plans_cannot_be_shared_each_makes_its_own(
    plans: Callable[..., EpochPlans], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan").touch()
    assert same(plans(tmp_path / "plan"), plans(), 0)
    assert "note: this process keeps a plan of its own" in capsys.readouterr().err


@pytest.mark.parametrize("left", ["nothing", "half", "other"])
def test_a_damaged_plan_is_said_and_made_anew_once_for_all(
    plans: Callable[..., EpochPlans], planned: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str], left: str
) -> None:
    plans(tmp_path / "plan").epoch(0)
    (kept,) = (tmp_path / "plan").glob("epoch-*/utterances.npy")
    whole = kept.read_bytes()
    kept.write_bytes({"nothing": b"", "half": whole[: len(whole) // 2], "other": whole[:-4] + b"\0\0\0\0"}[left])
    many, alone = [plans(tmp_path / "plan") for _ in range(3)], plans()
    assert all(same(one, alone, 0) for one in many)
    assert planned == [0, 0, 0]  # then anew, and the one it is compared with
    assert capsys.readouterr().err.count("is planned anew, for it is damaged: ") == 1
    assert kept.read_bytes() == whole


def test_a_plan_that_is_cut_short_while_it_is_used_is_an_error_that_names_it(
    plans: Callable[..., EpochPlans], tmp_path: Path
) -> None:
    used = plans(tmp_path / "plan")
    before = used.at(0)[0].micro_batch(0, 0).tolist()
    for kept in (tmp_path / "plan").glob("epoch-*/*.npy"):
        kept.rename(kept.with_suffix(".away"))
    assert used.at(0)[0].micro_batch(0, 0).tolist() == before  # what is removed stays for who uses it
    for kept in (tmp_path / "plan").glob("epoch-*/*.away"):
        os.truncate(kept, 256)
    last = used.steps_per_epoch - 1
    with pytest.raises(DataError, match=r"plan/epoch-.*\.npy was cut short while it was used: \d+ of \d+ bytes are"):
        used.planned(last)
    with pytest.raises(DataError, match="the same command goes on and makes it anew"):
        used.at(last)[0].micro_batch(last, 3)


def test_the_next_epoch_is_planned_before_it_is_needed_and_none_beyond_the_last_step(
    plans: Callable[..., EpochPlans], planned: list[int], collection: Collection, tokenizer: Tokenizer
) -> None:
    made = plans()
    last = made.steps_per_epoch
    assert last >= 4
    with ExampleReader(collection, tokenizer, 3, None, SPEEDS) as reader:
        loader = iter(Loader(made, reader, range(4), 0, last + 1, LoaderSettings(workers=0)))
        next(loader)
        assert planned == [0]
        for _ in range(last // 2 + 1):
            next(loader)
        made.epoch(1)
        assert planned == [0, 1]
        list(loader)
    assert planned == [0, 1]


def test_the_epoch_before_is_kept_for_steps_that_are_made_anew(
    plans: Callable[..., EpochPlans], planned: list[int]
) -> None:
    made = plans()
    for step in (0, made.steps_per_epoch, 0, made.steps_per_epoch):
        made.at(step)
    assert planned == [0, 1]
