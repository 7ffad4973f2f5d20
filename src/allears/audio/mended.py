"""A file with some bytes of its header replaced, without a copy of it."""

from __future__ import annotations

import io
from typing import BinaryIO


def mended(file: BinaryIO, place: int, there: bytes) -> BinaryIO:
    """``file`` with the bytes ``there`` at ``place``."""
    return io.BufferedReader(_Mended(file, place, there))


class _Mended(io.RawIOBase):
    def __init__(self, file: BinaryIO, place: int, there: bytes) -> None:
        self._file = file
        self._place = place
        self._there = there

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # as BufferedReader calls it
        at = self._file.tell()
        data = bytearray(self._file.read(len(buffer)))
        for place, value in enumerate(self._there, self._place - at):
            if 0 <= place < len(data):
                data[place] = value
        buffer[: len(data)] = data
        return len(data)
