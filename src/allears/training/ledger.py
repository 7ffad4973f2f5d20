"""Which utterance was used in which step and micro-batch: each rank writes a line a step, of the places it computed.

ledger/rank-N.jsonl: ``{"step": 12, "used": {"0": [4, 17], "1": []}, "rejected": {"0": ["its id"]}}``, where numbers
count the run's training utterances in their order. A resumed run, on any number of ranks, first takes back the lines of
the steps that it will take again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allears.training.lines import StepLines

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from allears.loading.loader import StepWork
    from allears.world import World


def ledger_folder(run: Path) -> Path:
    """Where the ledgers of ``run`` lie."""
    return run / "ledger"


class Ledger:
    """One rank's ledger; made on all ranks together, to be used as a context.

    Args:
        run: folder of the run.
        start: first plan step.
        world: who else writes one.
    """

    def __init__(self, run: Path, start: int, world: World) -> None:
        folder = ledger_folder(run)
        if world.leads:
            for path in folder.glob("*.jsonl"):
                StepLines(path, start).__exit__()  # also those of ranks that are no more
        world.barrier()
        self._lines = StepLines(folder / f"rank-{world.rank}.jsonl", start)

    def write(self, work: StepWork) -> None:
        """Add this rank's part of a step that has been taken."""
        used = {
            str(place): batch.utterances if batch else []
            for place, batch in zip(work.places, work.batches, strict=True)
        }
        rejected = {str(place): [one.id for one in found] for place, found in work.rejected.items()}
        self._lines.add({"step": work.planned.step, "used": used, **({"rejected": rejected} if rejected else {})})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._lines.__exit__()
