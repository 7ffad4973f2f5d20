"""Two ranks of a command, on which one micro-batch has NaN in an utterance's audio, or is empty.

``python -m proof.spoiled nan|empty UTTERANCE STEP PLACE -- train …``
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allears.types import Batch

RANKS = 2


def main() -> None:
    """Start both ranks, or be one."""
    if "RANK" in os.environ:
        _rank()
        return
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "proof.spoiled", *sys.argv[1:]],
                env=os.environ
                | {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
                | {"LOCAL_WORLD_SIZE": str(RANKS), "ALLEARS_RENDEZVOUS": f"file://{folder}/rendezvous"},
            )
            for rank in range(RANKS)
        ]
        sys.exit(max(rank.wait() for rank in ranks))


def _rank() -> None:
    import torch

    from allears.cli.main import main as command
    from allears.loading.loader import Loader

    what, utterance, step, place = sys.argv[1], *map(int, sys.argv[2:5])
    only, micro_batch = Loader._work, Loader._micro_batch

    def spoiled(self: Loader, *given: Any) -> Any:
        batch, rejected = micro_batch(self, *given)
        return (_with_nan(batch, utterance, torch) if batch is not None else None), rejected

    def emptied(self: Loader, planned: Any, made: Any) -> Any:
        work = only(self, planned, made)
        return work.emptied({place}, {}) if planned.step == step else work

    if what == "nan":
        Loader._micro_batch = spoiled  # type: ignore[assignment, method-assign]
    else:
        Loader._work = emptied  # type: ignore[method-assign]
    sys.argv = ["allears", *sys.argv[sys.argv.index("--") + 1 :]]
    command()


def _with_nan(batch: Batch, utterance: int, torch: Any) -> Batch:
    from dataclasses import replace

    if utterance not in batch.utterances:
        return batch
    waveforms = batch.waveforms.to(torch.float32)
    waveforms[batch.utterances.index(utterance), 100] = torch.nan
    return replace(batch, waveforms=waveforms)


main()
