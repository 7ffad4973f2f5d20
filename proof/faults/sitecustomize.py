"""A fault in one rank, once: Python imports this first in every process, where its folder is on PYTHONPATH.

``ALLEARS_PROOF_FAULT`` is ``raise``, or ``leave`` (with exit code 0); the file ``ALLEARS_PROOF_MARK`` is there from
then on. Ranks are forked from a process that has imported everything: there the reader of examples is replaced, before
anybody is a rank.
"""

import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

RANK = "1"
AFTER = 100
"""How many utterances a loader's worker makes before: a few steps."""

if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    from allears.loading.example import ExampleReader

    example = ExampleReader.example
    made: list[int] = []

    def faulty(self: ExampleReader, utterance: int, epoch: int, into: Any = None) -> Any:
        """`ExampleReader.example`, until the fault comes."""
        if os.environ.get("RANK") == RANK and threading.current_thread().name.startswith("loader"):
            made.append(utterance)
            if len(made) > AFTER:
                _once()
        return example(self, utterance, epoch, into)

    ExampleReader.example = faulty  # type: ignore[method-assign]


def _once() -> None:
    with contextlib.suppress(FileExistsError):
        Path(os.environ["ALLEARS_PROOF_MARK"]).touch(exist_ok=False)
        if os.environ["ALLEARS_PROOF_FAULT"] == "leave":
            os._exit(0)
        raise OSError("the disk is on fire")
