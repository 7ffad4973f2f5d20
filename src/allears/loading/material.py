"""What a training works on: a tokenizer, the utterances that can be used, and their plan; what is left out is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allears.errors import PlanError
from allears.loading.collection import Collection
from allears.loading.loader import EpochPlans
from allears.loading.plan import PlanSettings, limits
from allears.loading.tokens import token_counts
from allears.text.tokenizer import Tokenizer, TokenizerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from allears.loading.augment import Augmentation, AugmentSettings
    from allears.loading.collection import SourceSettings
    from allears.world import World

    Frames = Callable[[NDArray[np.int64]], NDArray[np.int64]]

SAMPLED = 10_000
"""Texts that are looked at to name the unknown characters."""


@dataclass(frozen=True)
class Material:
    """Usable utterances, their plan, the sets that are scored on the way, and the tokenizer of all."""

    collection: Collection
    plans: EpochPlans
    validation: dict[str, Collection]
    tokenizer: Tokenizer


def gather(
    train: Sequence[SourceSettings],
    validation: dict[str, SourceSettings],
    plan: PlanSettings,
    tokenizer: TokenizerSettings,
    output_frames: Frames,
    seed: int,
    augment: AugmentSettings,
    folder: Path,
    resumed: bool,
    world: World,
    tell: Callable[[str], None],
) -> Material:
    """Open the data; the leader makes the tokenizer and counts tokens, the others read what it wrote.

    Args:
        train: what is trained on; a part is held out when ``validation`` is empty.
        validation: name → what is scored on the way.
        plan: what a step is.
        tokenizer: how text becomes tokens.
        output_frames: samples [n] → frames in which the model can place tokens [n].
        seed: of the run.
        augment: what changes lengths; no draw of it makes an utterance unusable.
        folder: of the run, for its tokenizer.
        resumed: whether the run has a checkpoint, whose tokenizer is then the one in ``folder``.
        world: who else does this.
        tell: says a note to the user.

    Raises:
        PlanError: nothing can be trained on.
    """
    if not train:
        raise PlanError("train is empty: name a prepared dataset, such as dataset=PATH on the command line.")
    for source in train:
        splits = source.open()[0].splits
        if source.split is None and len(splits) > 1:
            tell(f"all splits of {source.dataset} are used: {', '.join(splits)}; name one, as in train.split=train.")
    collection = Collection.open(train)
    held = {name: Collection.open([source]) for name, source in validation.items()}
    if not held:
        collection, part, said = collection.hold_out()
        tell(said)
        held = {"held_out": part} if len(part) else {}
    if world.leads:
        if not resumed:
            _make_tokenizer(folder / "tokenizer", tokenizer, collection, tell)
        token_counts(collection, Tokenizer.load(folder / "tokenizer"))
    world.barrier()
    made = Tokenizer.load(folder / "tokenizer")
    counts = token_counts(collection, made)
    augmentation = augment.build(seed)
    usable = _usable(collection, counts, plan, tokenizer.most_unknown, made, output_frames, augmentation, tell)
    collection, counts = collection.only(usable), counts[usable]
    return Material(collection, EpochPlans(collection, counts[:, 0], plan, seed, augment), held, made)


def _make_tokenizer(
    place: Path, settings: TokenizerSettings, collection: Collection, tell: Callable[[str], None]
) -> None:
    """Leave the run's tokenizer in ``place``: the one that is named, or a new one."""
    if settings.path is not None:
        made = Tokenizer.load(Path(settings.path))
    else:
        made, remark = Tokenizer.train([collection.text(utterance) for utterance in range(len(collection))], settings)
        if remark:
            tell(remark)
    made.save(place)


def _usable(
    collection: Collection,
    counts: NDArray[np.int32],
    plan: PlanSettings,
    most_unknown: float,
    tokenizer: Tokenizer,
    output_frames: Frames,
    augmentation: Augmentation,
    tell: Callable[[str], None],
) -> NDArray[np.bool_]:
    """Which utterances [n] can be trained on."""
    tokens, frames, unknown = counts.T
    limited = limits(collection.lengths, plan, augmentation.longest(collection.lengths))
    usable = limited.usable
    if (usable & (unknown > 0)).any():
        tell(_strange(collection, usable & (unknown > 0), tokenizer))
    left_out = [f"{number:,} are {rule}" for rule, number in limited.left_out.items() if number]
    for why, remedy, at in (
        ("without a token left of their text", "", tokens == 0),
        (
            f"of more unknown tokens than tokenizer.most_unknown ({most_unknown:g} of all) allows",
            "use a tokenizer made from more texts like these, or raise that",
            ~np.bool_(tokenizer.writes_bytes) & (unknown > most_unknown * tokens),
        ),
        (
            "of more tokens than the model has frames, so that CTC cannot align them",
            "use a tokenizer of fewer and longer tokens, such as words or more pieces, or a model that subsamples less",
            output_frames(augmentation.shortest(collection.lengths)) < frames,
        ),
    ):
        out = usable & at
        usable = usable & ~out
        if out.any():
            ids = f"such as {', '.join(collection.id(int(n)) for n in np.flatnonzero(out)[:3])}"
            left_out.append(f"{int(out.sum()):,} are {why} ({'; '.join(filter(None, (ids, remedy)))})")
    found = ", ".join(left_out)
    if not usable.any():
        raise PlanError(
            f"train: none of the {len(collection):,} utterances can be trained on: {found}; check the transcripts and "
            "the tokenizer."
        )
    if found:
        tell(f"{int((~usable).sum()):,} of {len(collection):,} utterances are left out: {found}.")
    return usable


def _strange(collection: Collection, at: NDArray[np.bool_], tokenizer: Tokenizer) -> str:
    """What to say of the utterances [n] that hold characters without a token of their own."""
    rows = np.flatnonzero(at)
    # A sample is enough to name the most frequent, and a million texts would take a minute.
    sample = rows[:: max(1, len(rows) // SAMPLED)]
    counts = Counter(unit for row in sample for unit in tokenizer.unknown(collection.text(int(row))))
    units = ", ".join(f"{unit!r} {count:,} times" for unit, count in sorted(counts.items(), key=_often)[:5])
    among = f"of {len(sample):,} of these " if len(sample) < len(rows) else ""
    return (
        f"{len(rows):,} of {len(at):,} utterances hold {'words' if tokenizer.kind == 'words' else 'characters'} that "
        f"have no token of their own, which become {'bytes' if tokenizer.writes_bytes else 'the unknown token'}; the "
        f"most frequent {among}are {units}."
    )


def _often(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]
