"""What a run works on, from its settings."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from allears.errors import CheckpointError, DataError
from allears.loading.material import Material, gather, tokenizer_folder
from allears.processes import PART
from allears.reporting import say
from allears.text.tokenizer import Tokenizer
from allears.training.checkpoint import checkpoints
from allears.training.checksums import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
        folder: of the run.
        trained: whether it has a tokenizer already.
        world: who else does this.

    Raises:
        AllearsError: see `allears.loading.material.gather`.
    """

    def tell(text: str) -> None:
        if world.leads and os.environ.get(PART, "0") == "0":
            say(f"note: {text}")

    return gather(
        train,
        settings.validation,
        settings.plan,
        settings.tokenizer,
        settings.model.output_frames,
        settings.seed,
        settings.augment,
        folder,
        tokenizer_of(folder, tell) if trained else None,
        world,
        tell,
    )


def tokenizer_of(run: Path, tell: Callable[[str], None]) -> Path:
    """Folder of the tokenizer that ``run`` was trained with: its own, else that of its newest sound checkpoint.

    Args:
        run: its folder.
        tell: says which one, where it is not the run's own.

    Raises:
        DataError: there is none.
    """
    own = tokenizer_folder(run)
    try:
        Tokenizer.load(own)
    except DataError as error:
        for path in reversed(checkpoints(run)):
            with contextlib.suppress(CheckpointError, DataError):
                verify(path, optimizer=False)
                tell(f"the tokenizer of {path.name} is used, for {str(error).partition(';')[0].rstrip('.')}.")
                return path / "tokenizer"
        raise
    return own
