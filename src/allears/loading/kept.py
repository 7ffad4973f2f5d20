"""A column of numbers in a file, read a stretch at a time where it lies.

It is not mapped into memory: where a mapped file is cut short while it is used, the system ends the process that looks
at it (SIGBUS) before anything can be said. What is read stays in the system's cache, which all processes share.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from allears.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class KeptColumn:
    """A column [n] in a ``.npy`` file; from any number of threads.

    Args:
        path: the file; it may be removed meanwhile.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no such file, or shorter than its header says.
        EOFError: it is empty.
    """

    def __init__(self, path: Path) -> None:
        column = np.load(path, mmap_mode="r", allow_pickle=False)  # for its header alone
        self._path, self._dtype, self._count, self._begin = path, column.dtype, len(column), column.offset
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, stretch: slice, /) -> NDArray[Any]:
        """The values of a stretch.

        Raises:
            DataError: the file has been cut short.
        """
        begin, end, _ = stretch.indices(self._count)
        size = max(end - begin, 0) * self._dtype.itemsize
        data = os.pread(self._descriptor, size, self._begin + begin * self._dtype.itemsize)
        if len(data) != size:
            raise DataError(
                f"{self._path} was cut short while it was used: {len(data)} of {size} bytes are there; "
                "the same command goes on and makes it anew."
            )
        return np.frombuffer(data, self._dtype)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[Any]:
        """All values, as numpy asks for them."""
        return self[:]
