"""Checkpoints beside the steps: what a checkpoint holds changes only when a step is applied.

save      where the training stands is taken down; the steps go on at once
copy      a thread copies all tensors to host memory, while the next step runs forward and backward
copied    the next step waits here before it changes anything; mostly it need not
write     the same thread writes the copy, flushes and renames it, and removes old checkpoints
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from allears.errors import CheckpointError, DataError
from allears.files import PARTIAL
from allears.reporting import say
from allears.training.checkpoint import checkpoint_folder, checkpoints, optimizer_tensors, write

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from torch import Tensor, nn

    from allears.text.tokenizer import Tokenizer
    from allears.training.checkpoint import Position


_FAILURES = (CheckpointError, DataError, OSError)


class Saver:
    """Saves nothing: the saver of a rank that does not lead, whose state is the leader's."""

    def save(self, position: Position) -> None:
        """Begin to save where the training stands."""

    def copied(self) -> None:
        """Wait until everything that is to be saved has been copied."""

    def finish(self) -> None:
        """Wait until the last checkpoint is written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread."""


class BackgroundSaver(Saver):
    """Saves one training. Its host memory is taken, and touched, when it is made: the first save costs no more.

    Args:
        run: folder of the run.
        model: what is saved.
        optimizer: likewise; with its state, see `allears.training.optimizer.with_state`.
        settings: of the run.
        tokenizer: of the model.
        keep: how many of the newest checkpoints stay.
        keep_best: how many of the best ones stay.
    """

    def __init__(
        self,
        run: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: dict[str, Any],
        tokenizer: Tokenizer,
        keep: int,
        keep_best: int,
    ) -> None:
        self._run = run
        self._model = _Copies(model.state_dict())
        self._optimizer = _Copies(optimizer_tensors(model, optimizer))
        self._others = (settings, tokenizer, keep, keep_best)
        self._device = next(model.parameters()).device
        self._copier = ThreadPoolExecutor(1, "checkpoint copy", torch.set_num_threads, (1,))
        self._writer = ThreadPoolExecutor(1, "checkpoint write", _be_nice)
        self._copied: Future[None] | None = None
        self._written: Future[bool] | None = None
        self._last: Position | None = None

    def save(self, position: Position) -> None:
        """Begin to save; waits first if the checkpoint before is still being written."""
        if self._written is not None:
            self._written.result()
        before = torch.cuda.current_stream().record_event() if self._device.type == "cuda" else None
        self._last = position
        copying = self._copied = self._copier.submit(self._copy, before)
        self._written = self._writer.submit(self._write, position, copying)

    def copied(self) -> None:
        if self._copied is not None:
            self._copied.result()
            self._copied = None

    def finish(self) -> None:
        """Wait until the last checkpoint is written; if it could not be, try again now.

        Raises:
            CheckpointError: it cannot be written.
        """
        if self._written is not None and self._last is not None and not self._written.result():
            try:
                self._write_now(self._last)
            except _FAILURES as error:
                found = checkpoints(self._run)
                stands = f"{found[-1].name}, the newest that is" if found else "the start, for none is"
                raise CheckpointError(
                    f"the last checkpoint is not saved: {_reason(error)}; free some space there, or mend what else "
                    f"is said, and the same command goes on from {stands}."
                ) from error
        self._written = None

    def _copy(self, before: torch.cuda.Event | None) -> None:
        if before is None:
            self._model.take()
            self._optimizer.take()
            return
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            stream.wait_event(before)
            self._model.take()
            self._optimizer.take()
        stream.synchronize()

    def _write(self, position: Position, copying: Future[None]) -> bool:
        copying.result()
        try:
            self._write_now(position)
        except _FAILURES as error:
            name = checkpoint_folder(self._run, position.step).name
            say(f"note: {name} is not saved: {_reason(error)}; the earlier ones stay, and another try will follow.")
            return False
        return True

    def _write_now(self, position: Position) -> None:
        write(self._run, position, self._model.copies, self._optimizer.copies, *self._others)

    def __exit__(self, *_: object) -> None:
        self._copier.shutdown()
        self._writer.shutdown()


def _reason(error: Exception) -> str:
    """What ``error`` says, without the folder's name for a while and without a remedy."""
    return str(error).replace(PARTIAL, "").partition(";")[0].rstrip(".")


def _be_nice() -> None:
    """Let this thread's work wait for the training's where cores are scarce: threads have priorities on Linux."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class _Copies:
    """Tensors of a device and their copies in host memory, page-locked where a GPU writes into it."""

    def __init__(self, sources: dict[str, Tensor]) -> None:
        self._sources = sources
        self.copies = {
            name: torch.zeros(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
            for name, source in sources.items()
        }

    def take(self) -> None:
        """Copy all."""
        for copy, source in zip(self.copies.values(), self._sources.values(), strict=True):
            copy.copy_(source, non_blocking=True)
