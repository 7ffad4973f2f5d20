"""The chunks of a wav file, where libsndfile cannot make sense of them: no length, and one file behind another."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, Final

from allears.audio.decode import UNREADABLE
from allears.audio.mended import mended
from allears.errors import AudioError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDLESS: Final = b"\xff\xff\xff\xff"
_MPEG: Final = (b"\x50\x00", b"\x55\x00")
_EXTENSIBLE: Final = b"\xfe\xff"


def holds_mpeg(file: BinaryIO) -> bool:
    """Whether the samples are MPEG audio, as MP3 is."""
    for mark, place, _ in _chunks(file):
        if mark == b"fmt ":
            file.seek(place + 8)
            found = file.read(26)
            code = found[:2]
            return (found[24:] if code == _EXTENSIBLE else code) in _MPEG
        if mark == b"data":
            break
    return False


def without_length(file: BinaryIO) -> int | None:
    """The place of the four bytes that say 0 bytes of samples where there are some; None in any other wav.

    A program that writes into a pipe cannot go back to fill them in.
    """
    end = file.seek(0, io.SEEK_END)
    for mark, place, size in _chunks(file):
        if mark == b"data":
            return place + 4 if size == 0 and place + 8 < end and not _is_chunk(file, place + 8, end) else None
    return None


def check_single(file: BinaryIO, name: str) -> None:
    """A second file behind the first would be lost.

    Raises:
        AudioError: there is one; ``name`` stands in it.
    """
    for mark, place, _ in _chunks(file):
        if mark in {b"RIFF", b"RIFX"}:
            raise AudioError(
                UNREADABLE, f"{name} is damaged: another wav file begins in it, at byte {place}; part the two."
            )


def endless(file: BinaryIO, place: int) -> BinaryIO:
    """``file`` with the length at ``place`` [`without_length`] saying that samples go on to the end."""
    return mended(file, place, _ENDLESS)


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, int, int]]:
    """(mark, place, bytes of content) of each chunk in a RIFF or RIFX file."""
    file.seek(0)
    order = "big" if file.read(4) == b"RIFX" else "little"
    place = 12
    while True:
        file.seek(place)
        head = file.read(8)
        if len(head) < 8:
            return
        size = int.from_bytes(head[4:], order)  # type: ignore[arg-type]  # one of the two it may be
        yield head[:4], place, size
        place += 8 + size + size % 2


def _is_chunk(file: BinaryIO, place: int, end: int) -> bool:
    """Whether what lies at ``place`` is a chunk that ends within the file."""
    file.seek(place)
    head = file.read(8)
    return (
        len(head) == 8
        and all(32 <= letter < 127 for letter in head[:4])
        and place + 8 + int.from_bytes(head[4:], "little") <= end
    )
