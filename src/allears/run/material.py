"""What a run works on, from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allears.loading.material import Material, gather
from allears.reporting import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from allears.loading.collection import SourceSettings
    from allears.run.settings import RunSettings
    from allears.world import World


def material_of(
    settings: RunSettings, train: Sequence[SourceSettings], folder: Path, trained: bool, world: World
) -> Material:
    """What a training by ``settings`` on the sources ``train`` works on; the leader says what is left out.

    Args:
        settings: of the run.
        train: the settings' own sources, or others.
        folder: of the run, for its tokenizer.
        trained: whether that tokenizer is there already.
        world: who else does this.

    Raises:
        AllearsError: see `allears.loading.material.gather`.
    """
    return gather(
        train,
        settings.validation,
        settings.plan,
        settings.tokenizer,
        settings.model.output_frames,
        settings.seed,
        settings.augment,
        folder,
        trained,
        world,
        lambda text: say(f"note: {text}") if world.leads else None,
    )
