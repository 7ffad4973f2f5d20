"""Reading audio from shards: one ``pread`` at a position, without a lock, from any number of threads."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from allears.errors import DatasetError
from allears.types import Segment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allears.manifest.index import Index

OPEN_FILES = 256
"""How many shards are kept open; far below the usual limit of 1,024 files a process."""


class _File:
    """An open descriptor that is closed with its last user: dropping it never closes it under a running read."""

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class ShardReader:
    """The audio of a dataset's utterances; files are opened when first needed. Pickles as its index."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._open: dict[int, _File] = {}
        self._opening = threading.Lock()

    def segment(self, i: int) -> Segment:
        """The audio of utterance ``i`` as it lies in its shard.

        Raises:
            DatasetError: the shard is missing, unreadable, or not as long as the index says.
        """
        data = bytearray(int(self._index.size[i]))
        self._read(i, memoryview(data))
        return Segment(self._index.encoding, bytes(data))

    def read_into(self, i: int, samples: NDArray[np.int16]) -> None:
        """Read all of utterance ``i`` into ``samples`` [its length], without a copy in between; of PCM shards alone.

        Raises:
            DatasetError: as `segment` does.
        """
        self._read(i, samples.data)

    def _read(self, i: int, into: memoryview) -> None:
        """Fill ``into``, which is as large as the audio."""
        shard, offset = int(self._index.shard[i]), int(self._index.offset[i])
        file = self._open.get(shard) or self._opened(shard)
        try:
            done = os.preadv(file.descriptor, [into], offset)
        except OSError as error:
            raise DatasetError(f"{self._path(shard)} cannot be read: {error.strerror}.") from error
        if done != (size := into.nbytes):
            raise DatasetError(
                f"{self._path(shard)} gave {done} of {size} bytes at {offset}: it is cut short; "
                "prepare the dataset again with --overwrite."
            )

    def close(self) -> None:
        """Close all files; a later `segment` opens them again."""
        with self._opening:
            self._open.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardReader, (self._index,)

    def _path(self, shard: int) -> str:
        return os.fspath(self._index.folder / self._index.shards[shard].name)

    def _opened(self, shard: int) -> _File:
        path = self._path(shard)
        with self._opening:
            if shard in self._open:  # by another thread, meanwhile
                return self._open[shard]
            try:
                file = _File(path)
                size = os.fstat(file.descriptor).st_size
            except OSError as error:
                raise DatasetError(
                    f"{path} cannot be opened ({error.strerror}); restore it, or prepare the dataset again "
                    "with --overwrite."
                ) from error
            expected = self._index.shards[shard].size
            if size != expected:
                raise DatasetError(
                    f"{path} has {size} bytes where the index says {expected}; prepare the dataset again "
                    "with --overwrite."
                )
            if len(self._open) >= OPEN_FILES:
                del self._open[next(iter(self._open))]
            self._open[shard] = file
            return file
