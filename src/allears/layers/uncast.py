"""Modules that stay as precise as they are in a model that is cast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from torch import Tensor


class Uncast(nn.Module):
    """Its buffers go where the model goes, but ``model.half()`` and the like do not change their type."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            self._buffers[name] = buffer.to(getattr(self, name).device)
        return self
