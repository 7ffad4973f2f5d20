from __future__ import annotations

import numpy as np
import pytest

from allears.scoring.bootstrap import FEWEST_SPEAKERS, Bootstrap
from allears.scoring.rates import Count


def drawn(speakers: int, each: int, seed: int) -> tuple[list[str], list[Count]]:
    """Utterances of ten words, whose error rate is their speaker's: 0.2 on average."""
    draw = np.random.default_rng(seed)
    names, counts = [], []
    for speaker in range(speakers):
        rate = draw.beta(2, 8)
        for _ in range(each):
            names.append(f"s{speaker}")
            counts.append(Count(10, int(draw.binomial(10, rate)), 0, 0))
    return names, counts


def share_covered(blind: bool) -> float:
    """How often the interval of a set holds the rate that all sets are drawn from."""
    hits = 0
    for seed in range(60):
        names, counts = drawn(30, 10, seed)
        ends = Bootstrap([""] * len(names) if blind else names).interval(counts)
        assert ends is not None
        hits += ends[0] <= 0.2 <= ends[1]
    return hits / 60


def test_an_interval_over_speakers_holds_the_true_rate() -> None:
    assert share_covered(blind=False) >= 0.88
    assert share_covered(blind=True) <= 0.85  # utterances of one speaker err together


def test_speakers_are_drawn_where_there_are_enough() -> None:
    names = [f"s{n % FEWEST_SPEAKERS}" for n in range(100)]
    assert Bootstrap(names).over == "speakers"
    assert Bootstrap([*names, ""]).over == "utterances"
    assert Bootstrap(names[: FEWEST_SPEAKERS - 1]).over == "utterances"
    assert Bootstrap([]).over == "utterances"


def test_the_interval_of_a_share_is_the_textbooks() -> None:
    counts = [Count(1, int(n < 100), 0, 0) for n in range(1000)]
    ends = Bootstrap([""] * 1000).interval(counts)
    deviation = 1.96 * np.sqrt(0.1 * 0.9 / 1000)
    assert ends == pytest.approx([0.1 - deviation, 0.1 + deviation], abs=0.003)
    assert Bootstrap([""] * 1000).interval(counts) == ends


def test_blocks_of_draws_do_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names, counts = drawn(3, 10, 1)
    whole = Bootstrap(names).interval(counts)
    monkeypatch.setattr("allears.scoring.bootstrap._AT_ONCE", 30 * 7)
    assert Bootstrap(names).interval(counts) == whole


def test_sets_that_tell_nothing() -> None:
    assert Bootstrap([]).interval([]) is None
    assert Bootstrap(["a"]).interval([Count(3, 1, 0, 0)]) is None
    assert Bootstrap(["", ""]).interval([Count(), Count()]) == [0.0, 0.0]
    assert Bootstrap(["", ""]).interval([Count(0, 0, 2, 0), Count(0, 0, 1, 0)]) == [1.0, 1.0]
    assert Bootstrap(["", ""]).interval([Count(5, 0, 0, 0), Count(7, 0, 0, 0)]) == [0.0, 0.0]
