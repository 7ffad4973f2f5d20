"""Before the first step: does the plan's largest micro-batch fit, and does the same micro-batch give the same bits?

All that a training holds on to is there already: weights, gradients and their stack, the optimiser's state, the copies
for checkpoints. So memory runs out now, or not at all. Nothing is changed by it: dropout has its own seed in each
micro-batch, and batch norm's running statistics move only when a step is applied.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from allears.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from allears.loading.loader import StepWork
    from allears.training.step import Stepper
    from allears.types import Batch


def rehearse(stepper: Stepper, works: Sequence[StepWork], places: int) -> None:
    """Run the first micro-batch of each of ``works`` forward and backward, in the memory of a rank of ``places``.

    Raises:
        TrainingError: one of them does not fit into memory.
    """
    for work in works:
        batch = work.batches[0]
        if batch is None:
            continue
        try:
            stepper.engine.reserve(places)
            stepper.alone(work, work.places[0], batch)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "alloc" not in str(error) and "out of memory" not in str(error):
                raise
            raise TrainingError(_too_large(batch, stepper)) from error


def _too_large(batch: Batch, stepper: Stepper) -> str:
    rows, samples = batch.waveforms.shape
    device, micro_batches = stepper.world.device, stepper.micro_batches
    return (
        f"the plan's largest micro-batch ({rows} utterances of up to {samples / 16000:.1f} s and "
        f"{batch.tokens.shape[1]} tokens) does not fit into the memory of {device}: set plan.micro_batches to "
        f"{2 * micro_batches} (now {micro_batches}; a step stays what it is), or lower plan.max_seconds."
    )


def first_difference(stepper: Stepper, work: StepWork) -> str | None:
    """Run the first micro-batch of ``work`` twice and say which tensor first has other bits; None where all repeat.

    It is a module's output, in the order of forward, or else a weight's gradient, in the order of backward.
    """
    batch = work.batches[0]
    if batch is None:
        return None
    once, again = (_marks(stepper.engine.model, lambda: stepper.alone(work, work.places[0], batch)) for _ in range(2))
    return next((name for name, mark in once.items() if again.get(name) != mark), None)


def _marks(model: nn.Module, run: Callable[[], object]) -> dict[str, int]:
    """Name → a sum over the bits of each module's output and each weight's gradient while ``run`` runs ``model``."""
    sums: dict[str, Tensor] = {}
    with _outputs(model, sums):
        run()
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None:
            sums[f"the gradient of {name}"] = _bits(parameter.grad)
    return {name: int(value) for name, value in sums.items()}


@contextlib.contextmanager
def _outputs(model: nn.Module, sums: dict[str, Tensor]) -> Iterator[None]:
    names = {module: name for name, module in model.named_modules()}

    def look(module: nn.Module, _: object, output: object) -> None:
        for tensor in output if isinstance(output, tuple | list) else (output,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                sums[f"the output of {names[module] or 'the model'}"] = _bits(tensor)

    hooks = [module.register_forward_hook(look) for module in names]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _bits(tensor: Tensor) -> Tensor:
    """The sum of a tensor's bit patterns taken for integers, whose additions have no order."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().contiguous().view(whole).sum(dtype=torch.int64)
