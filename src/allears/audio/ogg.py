"""Whether an Ogg file is whole: decoders skip a page that was damaged, and what follows it is then at another time.

A page (RFC 3533, section 6) has its own length and checksum, so that all is found without decoding.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, BinaryIO, Final

from allears.audio.decode import UNREADABLE
from allears.errors import AudioError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD: Final = 27
_FIRST: Final = 2
"""A flag: the first page of a stream."""
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def check(file: BinaryIO, name: str) -> None:
    """Look at each page of ``file`` from its start; leaves it anywhere.

    Raises:
        AudioError: a page is damaged, missing or cut off; ``name`` stands in it.
    """
    expected: dict[int, int] = {}
    for place, page in _pages(file, name):
        serial, number = int.from_bytes(page[14:18], "little"), int.from_bytes(page[18:22], "little")
        if _checksum(page) != int.from_bytes(page[22:26], "little"):
            raise AudioError(UNREADABLE, f"{name} is damaged: the checksum of its Ogg page at byte {place} is wrong.")
        first = page[5] & _FIRST
        if not first and number != expected.get(serial, 0):
            raise AudioError(UNREADABLE, f"{name} is damaged: an Ogg page is missing before byte {place}.")
        expected[serial] = number + 1


def _pages(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """(first byte, bytes) of each page."""
    file.seek(0)
    place = 0
    while head := file.read(_HEAD):
        if head[:4] != b"OggS":
            raise AudioError(UNREADABLE, f"{name} is damaged: no Ogg page begins at byte {place}.")
        lacing = file.read(head[26]) if len(head) == _HEAD else b""
        body = file.read(sum(lacing))
        if len(head) < _HEAD or len(lacing) < head[26] or len(body) < sum(lacing):
            raise AudioError(UNREADABLE, f"{name} is cut off in its Ogg page at byte {place}.")
        page = head + lacing + body
        yield place, page
        place += len(page)


def _checksum(page: bytes) -> int:
    """CRC-32 as in Ogg: zlib's, with the bits of each byte and of the result in reverse order, and no inversions."""
    blank = page[:22] + bytes(4) + page[26:]
    found = zlib.crc32(blank.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{found:032b}"[::-1], 2)
