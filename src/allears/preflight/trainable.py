"""What a training by a config would leave out of a dataset, and how even its steps would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allears.loading.collection import Collection
from allears.loading.epochs import EpochPlans
from allears.loading.material import left_out_by, tokenizer_for
from allears.loading.tokens import token_counts
from allears.preflight import kinds
from allears.preflight.findings import Finding, ranked
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from allears.loading.augment import AugmentSettings
    from allears.loading.collection import Column
    from allears.loading.material import Frames
    from allears.loading.plan import PlanSettings
    from allears.manifest.index import Index, Rows
    from allears.preflight.settings import PreflightSettings
    from allears.text.tokenizer import Tokenizer, TokenizerSettings

RULES = (kinds.TOO_SHORT, kinds.TOO_LONG, kinds.UNPLANNED, kinds.NO_TOKENS, kinds.UNKNOWN, kinds.NOT_ALIGNED)
"""Kinds of the rules of `left_out_by`, in its order."""
LEAST_STEPS = 10
"""Fewer steps tell nothing of how they vary."""


@dataclass(frozen=True)
class Recipe:
    """What of a config decides which utterances can be trained on.

    Attributes:
        rows: of the dataset, that it trains on.
        plan: what a step is.
        tokenizer: how text becomes tokens.
        augment: what changes lengths.
        output_frames: samples [n] → frames in which the model can place tokens [n].
        normalisation: of the model's features.
        seed: of the run.
    """

    rows: Rows
    plan: PlanSettings
    tokenizer: TokenizerSettings
    augment: AugmentSettings
    output_frames: Frames
    normalisation: str
    seed: int


def trainable(index: Index, recipe: Recipe, settings: PreflightSettings, tell: Callable[[str], None]) -> list[Finding]:
    """All that stands in the way of training by ``recipe``; ``tell`` says notes to the user.

    Raises:
        SettingsError: no tokenizer can be made of the transcripts.
        DataError: the tokenizer that is named cannot be read.
    """
    collection = Collection([(index, recipe.rows)])
    tokenizer = tokenizer_for(collection, recipe.tokenizer, tell)
    counts = token_counts(collection, tokenizer)
    lengths, targets = collection.lengths, counts[:]
    rules = left_out_by(
        *(lengths, targets, recipe.plan, recipe.tokenizer.most_unknown, tokenizer),
        *(recipe.output_frames, recipe.augment.build(recipe.seed)),
    )
    found = [
        _left_out(kind, why, at, index, recipe.rows) for kind, ((why, _), at) in zip(RULES, rules.items(), strict=True)
    ]
    usable = ~np.any(list(rules.values()), axis=0)
    found.append(_strange(index, recipe.rows, usable & (targets[:, 2] > 0), tokenizer))
    if usable.any():
        found.append(_uneven(collection.only(usable), tokenizer, recipe, settings))
    median = float(np.median(lengths)) / SAMPLE_RATE
    if recipe.normalisation == "utterance" and median < settings.short_median:
        found.append(Finding.of_all(kinds.SHORT_NORMALISED, f"the median utterance has {median:.2f} s"))
    return [one for one in found if one]


def _whole(rows: Rows, at: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """``at`` [rows] as flags of the whole index [count]."""
    flags = np.zeros(count, dtype=bool)
    flags[np.asarray(rows)[at]] = True
    return flags


def _left_out(kind: kinds.Kind, why: str, at: NDArray[np.bool_], index: Index, rows: Rows) -> Finding:
    seconds = index.samples
    return ranked(kind, _whole(rows, at, len(index)), None, lambda row: f"{seconds[row] / SAMPLE_RATE:.2f} s, {why}")


def _strange(index: Index, rows: Rows, at: NDArray[np.bool_], tokenizer: Tokenizer) -> Finding:
    def words(row: int) -> str:
        return ", ".join(map(repr, dict.fromkeys(tokenizer.unknown(index.text(row)))))

    return ranked(kinds.STRANGE, _whole(rows, at, len(index)), None, words)


def _uneven(collection: Collection, tokenizer: Tokenizer, recipe: Recipe, settings: PreflightSettings) -> Finding:
    counts: Column = token_counts(collection, tokenizer)
    plans = EpochPlans(collection, counts, recipe.plan, recipe.seed, recipe.augment)
    plan = plans.epoch(0).plan
    in_steps = np.diff(plan.offsets[:][:: plan.micro_batches])  # [steps]
    varies = float(in_steps.std() / in_steps.mean())
    if plan.steps < LEAST_STEPS or varies <= settings.step_variation:
        return Finding.of_all(kinds.UNEVEN, "")
    return Finding.of_all(
        kinds.UNEVEN,
        f"{in_steps.mean():.1f} utterances in a step on average, {in_steps.min()} to {in_steps.max()}, "
        f"deviation over mean {varies:.0%}",
    )
