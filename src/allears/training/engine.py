"""How gradients meet: over the micro-batches of a rank, then over all ranks, while the last backward still runs.

All gradients lie in one flat buffer, cut into buckets in the order in which backward fills them, with batch norm's sums
behind them. A rank's micro-batches are added on a stack, as in a binary counter, so that they add along the step's
fixed tree: each gradient as soon as backward has it, while the processor's cache still holds it. During the last
backward each bucket that is full goes to the reduction, always in the same order.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from allears.layers.batch_norm import taken_sums

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allears.training.reduction import Reduce
    from allears.types import Loss

BUCKET_BYTES = 25 << 20
"""Large enough for a network's full speed, small enough that the first one is full early; DDP's own default."""

_SUMS = -1


def objective(loss: Loss, planned: int) -> Tensor:
    """The scalar to differentiate: sums over planned counts of the whole step, so that gradients need only be added."""
    return torch.stack([value / max(planned, 1) for value in loss.sums.values()]).sum()


@dataclass(frozen=True, eq=False)
class _Buffer:
    """A flat vector for all gradients; its views, one for each parameter in its shape, and batch norm's sums last."""

    flat: Tensor
    views: list[Tensor]


class Engine:
    """Gradients of one model.

    A step is `begin`, then for each micro-batch `clean`, backward, `done`, then `finish`.

    Args:
        model: whose parameters' ``grad`` will be views of flat buffers.
        reduce: adds over all ranks; none for a lone rank.
        ranks: how many there are.
        tree: whether micro-batches are added along the tree, which takes a buffer for each of its levels; otherwise
            one after the other.
    """

    def __init__(self, model: nn.Module, reduce: Reduce | None, ranks: int, tree: bool) -> None:
        self.model = model
        self._reduce = reduce
        self._tree = tree
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad][::-1]
        self._device = self._parameters[0].device
        self._places: list[slice] = []
        self._buckets: list[slice] = []
        self._bucket_of: list[int] = []
        self._lay_out(ranks)
        self._pool: list[_Buffer] = []
        self._stack: list[_Buffer] = []
        self._lefts: list[_Buffer] = []
        self._count = 0
        self._final = False
        self._missing: set[int] = set()
        self._waiting: list[int] = []
        self._sent: list[Future[None]] = []
        self._courier = _Courier(self._device) if reduce is not None else None
        for number, parameter in enumerate(self._parameters):
            reached = partial(self._reached, number)
            parameter.register_post_accumulate_grad_hook(reached)  # type: ignore[no-untyped-call]

    def use(self, reduce: Reduce | None, tree: bool) -> None:
        """Add by ``reduce``, along the tree or not, from the next `begin` on; a lone rank stays one."""
        self._reduce, self._tree = reduce, tree

    def _lay_out(self, ranks: int) -> None:
        """Give each parameter its place and each bucket its bounds, all divided by the number of ranks."""
        end = start = 0
        for parameter in self._parameters:
            self._places.append(slice(end, end + parameter.numel()))
            self._bucket_of.append(len(self._buckets))
            end += parameter.numel()
            if (end - start) * 4 >= BUCKET_BYTES:
                start = end = self._close(start, end, ranks)
        if end > start:
            end = self._close(start, end, ranks)
        self._sums = slice(end, end + taken_sums(self.model, self._device).numel())
        if self._sums.stop > end:
            self._close(end, self._sums.stop, ranks)

    def _close(self, start: int, end: int, ranks: int) -> int:
        end += -(end - start) % ranks
        self._buckets.append(slice(start, end))
        return end

    def reserve(self, places: int) -> None:
        """Take the memory that steps of ``places`` micro-batches of this rank will need."""
        most = max(n.bit_count() for n in range(0, places, 2)) + 1 if self._tree else 1
        self._pool += [self._new() for _ in range(most - len(self._pool) - len(self._stack))]

    def begin(self) -> None:
        """Begin a step; what may be left of an unfinished one is forgotten."""
        taken_sums(self.model, self._device)
        self._pool += self._stack
        self._stack = []
        self._count = 0

    def clean(self, final: bool) -> None:
        """Forget the gradients, for a micro-batch that is the ``final`` one of this rank or not."""
        if self._tree:
            carried = len(self._stack) if final else (~self._count & (self._count + 1)).bit_length() - 1
            self._lefts = self._stack[len(self._stack) - carried :][::-1]
            if not self._lefts:
                self._stack.append(self._pool.pop() if self._pool else self._new())
            self._missing = set(range(len(self._parameters)))
            for parameter in self._parameters:
                parameter.grad = None  # backward then hands its own over, instead of adding it to zeros
        elif self._count == 0:
            self._stack.append(self._pool.pop() if self._pool else self._new())
            self._stack[0].flat.zero_()
            for parameter, view in zip(self._parameters, self._stack[0].views[:_SUMS], strict=True):
                parameter.grad = view
        self._final = final
        if final:
            self._sent = []
            self._waiting = [self._bucket_of.count(bucket) for bucket in range(len(self._buckets))]
            if self._sums.stop > self._sums.start:
                self._waiting[-1] = 1  # they come when the micro-batch is done

    def done(self) -> None:
        """Put the micro-batch, which may have been empty, to the others of this rank."""
        sums = taken_sums(self.model, self._device)
        if self._tree:
            nothing = torch.zeros((), device=self._device)
            for number in self._missing:
                self._parameters[number].grad = self._put(number, nothing)
            self._put(_SUMS, sums)
            if self._lefts:  # they are one now, the last of them
                self._pool += self._lefts[:-1]
                del self._stack[self._stack.index(self._lefts[-1]) + 1 :]
        else:
            self._stack[0].views[_SUMS].add_(sums)
        self._count += 1
        if self._final:
            self._waiting = [0] * len(self._buckets)  # what backward has not reached is there too
            self._send()

    def finish(self) -> tuple[Tensor, float]:
        """Wait for all ranks; batch norm's sums of the whole step, and for how long this rank had to wait."""
        began = time.monotonic()
        for bucket in self._sent:
            bucket.result()
        if self._courier is not None:
            self._courier.join()
        return self._stack[0].views[_SUMS], time.monotonic() - began

    def _new(self) -> _Buffer:
        flat = torch.zeros(self._buckets[-1].stop, device=self._device)
        views = [
            flat[place].as_strided(parameter.shape, parameter.stride())
            for parameter, place in zip(self._parameters, self._places, strict=True)
        ]
        return _Buffer(flat, [*views, flat[self._sums]])

    def _reached(self, number: int, parameter: Tensor) -> None:
        """Backward has the gradient of a parameter."""
        if self._tree:
            assert parameter.grad is not None
            parameter.grad = self._put(number, parameter.grad)
            self._missing.discard(number)
        if self._final:
            self._waiting[self._bucket_of[number]] -= 1
            self._send()

    def _put(self, number: int, part: Tensor) -> Tensor:
        """Put a micro-batch's part to those on its left in the tree, nearest first; the view that holds the sum."""
        if not self._lefts:
            return self._stack[-1].views[number].copy_(part)
        for left in self._lefts:
            part = left.views[number].add_(part)
        return part

    def _send(self) -> None:
        """Hand on all buckets that are full, in their order: every rank has the same one."""
        while len(self._sent) < len(self._buckets) and self._waiting[len(self._sent)] == 0:
            self._sent.append(self._hand(self._stack[0].flat[self._buckets[len(self._sent)]]))

    def _hand(self, whole: Tensor) -> Future[None]:
        if self._courier is None or self._reduce is None:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._courier.carry(self._reduce, whole)


class _Courier:
    """Runs reductions one after the other beside backward: a thread on a CPU, a stream of its own on CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1, "reduction", torch.set_num_threads, (1,)) if self._stream is None else None
        self._failed: Exception | None = None

    def carry(self, reduce: Reduce, flat: Tensor) -> Future[None]:
        if self._thread is not None:
            return self._thread.submit(self._one, reduce, flat)
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream())
        done: Future[Any] = Future()
        with torch.cuda.stream(self._stream):
            reduce(flat)
        done.set_result(None)
        return done

    def _one(self, reduce: Reduce, flat: Tensor) -> None:
        """Reduce, unless an earlier bucket has failed: another rank would take this one for that."""
        if self._failed is not None:
            raise self._failed
        try:
            reduce(flat)
        except Exception as error:
            self._failed = error
            raise

    def join(self) -> None:
        """Let what follows on the device wait for what was carried."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
