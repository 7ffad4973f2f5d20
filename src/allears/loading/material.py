"""What a training works on: a tokenizer, the utterances that can be used, and their plan; what is left out is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allears.errors import PlanError
from allears.loading.collection import Collection
from allears.loading.epochs import EpochPlans
from allears.loading.plan import PlanSettings, blocks, limits
from allears.loading.tokens import token_counts
from allears.manifest.index import Index
from allears.text.tokenizer import Tokenizer, TokenizerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from allears.loading.augment import Augmentation, AugmentSettings
    from allears.loading.collection import Column, SourceSettings
    from allears.world import World

    Frames = Callable[[NDArray[np.int64]], NDArray[np.int64]]

LIMITS = 3
"""The first of the rules by which utterances are left out are about lengths."""
SAMPLED = 10_000
"""Texts that are looked at to name the unknown characters."""


@dataclass(frozen=True)
class Material:
    """Usable utterances, their plan, the sets that are scored on the way, and the tokenizer of all."""

    collection: Collection
    plans: EpochPlans
    validation: dict[str, Collection]
    tokenizer: Tokenizer


def tokenizer_folder(run: Path) -> Path:
    """Where the tokenizer of ``run`` lies."""
    return run / "tokenizer"


def gather(
    train: Sequence[SourceSettings],
    validation: dict[str, SourceSettings],
    plan: PlanSettings,
    tokenizer: TokenizerSettings,
    output_frames: Frames,
    seed: int,
    augment: AugmentSettings,
    folder: Path,
    kept: Path | None,
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
        folder: of the run.
        kept: folder of the tokenizer that the run has been trained with; none leaves one in the run's ``tokenizer/``.
        world: who else does this.
        tell: says a note to the user.

    Raises:
        PlanError: nothing can be trained on.
    """
    if not train:
        raise PlanError("train is empty: name a prepared dataset, such as dataset=PATH on the command line.")
    for source in train:
        splits = Index.open(Path(source.dataset)).splits
        if source.split is None and len(splits) > 1:
            tell(f"all splits of {source.dataset} are used: {', '.join(splits)}; name one, as in train.split=train.")
    collection = Collection.open(train)
    held = {name: Collection.open([source]) for name, source in validation.items()}
    if not held:
        collection, part, said = collection.hold_out()
        tell(said)
        held = {"held_out": part} if len(part) else {}
    place = kept or tokenizer_folder(folder)
    if world.leads:
        if kept is None:
            _make_tokenizer(place, tokenizer, collection, tell)
        token_counts(collection, Tokenizer.load(place))
    world.barrier()
    made = Tokenizer.load(place)
    counts = token_counts(collection, made)
    augmentation = augment.build(seed)
    usable = _usable(collection, counts, plan, tokenizer.most_unknown, made, output_frames, augmentation, tell)
    collection = collection.only(usable)
    shared = folder / "plan" if world.local_size > 1 else None
    plans = EpochPlans(collection, token_counts(collection, made), plan, seed, augment, shared)
    return Material(collection, plans, held, made)


def _make_tokenizer(
    place: Path, settings: TokenizerSettings, collection: Collection, tell: Callable[[str], None]
) -> None:
    """Leave the run's tokenizer in ``place``: the one that is named, or a new one."""
    tokenizer_for(collection, settings, tell).save(place)


def tokenizer_for(collection: Collection, settings: TokenizerSettings, tell: Callable[[str], None]) -> Tokenizer:
    """The tokenizer that the settings name, or a new one from the transcripts; ``tell`` says a remark on it."""
    if settings.path is not None:
        return Tokenizer.load(Path(settings.path))
    made, remark = Tokenizer.train([collection.text(utterance) for utterance in range(len(collection))], settings)
    if remark:
        tell(remark)
    return made


def _usable(
    collection: Collection,
    counts: Column,
    plan: PlanSettings,
    most_unknown: float,
    tokenizer: Tokenizer,
    output_frames: Frames,
    augmentation: Augmentation,
    tell: Callable[[str], None],
) -> NDArray[np.bool_]:
    """Which utterances [n] can be trained on."""
    samples = collection.column("samples")
    rule = np.zeros(len(collection), dtype=np.uint8)  # the first, from 1, that leaves an utterance out
    strange = np.zeros(len(collection), dtype=np.bool_)
    rules: list[tuple[str, str]] = []
    for block in blocks(len(collection)):
        lengths, targets = samples[block], counts[block]
        out = left_out_by(lengths, targets, plan, most_unknown, tokenizer, output_frames, augmentation)
        within = ~np.any(list(out.values())[:LIMITS], axis=0)
        strange[block] = (targets[:, 2] > 0) & within
        for number, leaves in enumerate(out.values(), start=1):
            rule[block][leaves & (rule[block] == 0)] = number
        rules = list(out)
        samples.forget()
        counts.forget()
    if strange.any():
        tell(_strange(collection, strange, tokenizer))
    left_out = []
    for number, (why, remedy) in enumerate(rules, start=1):
        at = np.flatnonzero(rule == number)
        if len(at):
            ids = f"such as {', '.join(collection.id(int(n)) for n in at[:3])}"
            left_out.append(f"{len(at):,} are {why} ({'; '.join(filter(None, (ids, remedy)))})")
    usable: NDArray[np.bool_] = rule == 0
    found = ", ".join(left_out) or "there are none"
    if not usable.any():
        raise PlanError(
            f"train: none of the {len(collection):,} utterances can be trained on: {found}; change these settings, or "
            "check the transcripts and the tokenizer."
        )
    if left_out:
        tell(f"{int((~usable).sum()):,} of {len(collection):,} utterances are left out: {found}.")
    return usable


def left_out_by(
    lengths: NDArray[np.int64],
    targets: NDArray[np.int32],
    plan: PlanSettings,
    most_unknown: float,
    tokenizer: Tokenizer,
    output_frames: Frames,
    augmentation: Augmentation,
) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Which rule leaves which utterances out of a training: (rule, remedy) → those that it concerns [n].

    Too short, too long, longer than a micro-batch (these are `LIMITS`); no token, too many unknown ones, too few frames
    for CTC.

    Args:
        lengths: samples [n].
        targets: tokens, frames that CTC needs, unknown tokens of each [n, 3].
        plan: limits of lengths.
        most_unknown: share of unknown tokens.
        tokenizer: that counted the tokens.
        output_frames: samples [n] → frames in which the model can place tokens [n].
        augmentation: what changes lengths.
    """
    tokens, frames, unknown = targets.T
    longest = augmentation.longest(lengths) if augmentation.changes_lengths else None
    return {(why, ""): at for why, at in limits(lengths, plan, longest).items()} | {
        ("without a token left of their text", ""): tokens == 0,
        (
            f"of more unknown tokens than tokenizer.most_unknown ({most_unknown:g} of all) allows",
            "use a tokenizer made from more texts like these, or raise that",
        ): (unknown > most_unknown * tokens) & (not tokenizer.writes_bytes),
        (
            "of more tokens than the model has frames, so that CTC cannot align them",
            "use a tokenizer of fewer and longer tokens, as words or more pieces are, or less subsampling",
        ): output_frames(augmentation.shortest(lengths)) < frames,
    }


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
