"""What a training by a config would leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allears.loading.augment import AugmentSettings
from allears.loading.plan import PlanSettings
from allears.preflight.settings import PreflightSettings
from allears.preflight.trainable import Recipe, trainable
from allears.text.tokenizer import TokenizerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from allears.preflight.findings import Finding
    from allears.preflight.survey import Survey

    Surveyed = Callable[..., Survey]


def frames(samples: NDArray[np.int64]) -> NDArray[np.int64]:
    return samples // 640


def found_in(
    survey: Survey,
    lengths: Sequence[int] | None = None,
    settings: PreflightSettings | None = None,
    notes: list[str] | None = None,
    **plan: Any,
) -> dict[str, Finding]:
    """Findings of a training with tokens that are characters; ``lengths`` in samples stand in the index's place."""
    index = survey.index
    if lengths is not None:
        index.samples = np.array(lengths, dtype=np.int64)
    recipe = Recipe(
        rows=range(len(index)),
        plan=PlanSettings(**({"step_seconds": 80.0, "micro_batches": 4} | plan)),
        tokenizer=TokenizerSettings(kind="characters"),
        augment=AugmentSettings(speed=(0.5, 1.0, 2.0)),
        output_frames=frames,
        normalisation="utterance",
        seed=0,
    )
    found = trainable(index, recipe, settings or PreflightSettings(), (notes if notes is not None else []).append)
    return {one.kind.name: one for one in found}


def rows(found: dict[str, Finding]) -> dict[str, list[int]]:
    return {name: one.rows.tolist() for name, one in found.items() if len(one.rows)}


def test_each_rule_of_a_training(surveyed: Surveyed) -> None:
    texts = ["abc abc"] * 6 + ["...", "жщю", "abc abc abc abc abc abc abc abc", "abcñ"]
    second = 16_000
    lengths = [4000, 31 * second, 11 * second, *[2 * second] * 7]
    notes: list[str] = []
    found = found_in(surveyed(texts), lengths, notes=notes)
    assert rows(found) == {
        "shorter than the plan allows": [0],
        "longer than the plan allows": [1],
        "no micro-batch holds it": [1, 2],  # 20 s of a micro-batch at half of the speed
        "no tokens": [6],
        "mostly unknown": [7],
        "CTC cannot align": [0, 8],
        "unknown characters": [9],
    }
    assert "0.25 s" in found["shorter than the plan allows"].words(0)
    assert found["unknown characters"].words(0) == "'ñ'"
    assert "minimum_count" in notes[0]


def test_steps_that_vary(surveyed: Surveyed) -> None:
    survey = surveyed(["abc"] * 200)
    lengths = np.random.default_rng(0).integers(8000, 158_000, 200).tolist()
    found = found_in(survey, lengths, step_seconds=20.0, micro_batches=1)
    assert "utterances in a step on average" in found["uneven steps"].whole
    content = PreflightSettings(step_variation=9)
    assert "uneven steps" not in found_in(survey, lengths, content, step_seconds=20.0, micro_batches=1)


def test_nothing_that_can_be_trained_on(surveyed: Surveyed) -> None:
    found = found_in(surveyed(["abc"] * 3), max_seconds=1.0)
    assert rows(found) == {"longer than the plan allows": [0, 1, 2]}


@pytest.mark.parametrize(("samples", "said"), [(20_000, True), (30_000, False)])
def test_short_utterances_normalised_one_by_one(surveyed: Surveyed, samples: int, said: bool) -> None:
    found = found_in(surveyed(["abc"] * 3), [samples] * 3)
    assert ("short utterances normalised one by one" in found) == said
