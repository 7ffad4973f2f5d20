"""What a file's first bytes say it is: who reads it, and what to call it when nobody does.

A name's ending is not looked at: downloads that failed are web pages called ``.wav``, and telephones call AAC ``.mp3``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal

Reader = Literal["libsndfile", "sphere", "ogg", "mp3", "ffmpeg", "nobody"]

HEAD_BYTES: Final = 4096
"""How much of a file, behind its tags, is looked at."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        name: as it stands in a sentence.
        reader: who reads it.
    """

    name: str
    reader: Reader


UNKNOWN: Final = Kind("", "libsndfile")

_SIGNATURES: Final[tuple[tuple[bytes, Kind], ...]] = (  # regular expressions, from the file's start
    (rb"RIFF....(WAVE|RMP3)|RIFX....WAVE|RF64....WAVE", Kind("wav", "libsndfile")),
    (rb"riff\x2e\x91\xcf\x11", Kind("Wave64", "libsndfile")),
    (rb"fLaC", Kind("FLAC", "libsndfile")),
    (rb"FORM....AIF[FC]", Kind("AIFF", "libsndfile")),
    (rb"\.snd|dns\.", Kind("au", "libsndfile")),
    (rb"caff", Kind("CAF", "libsndfile")),
    (rb"NIST_1A\n", Kind("SPHERE", "sphere")),
    (rb"OggS", Kind("Ogg", "ogg")),
    (rb"....ftyp|....(moov|mdat|wide|free)", Kind("MP4 (m4a, mp4, mov, 3gp)", "ffmpeg")),
    (rb"\x1aE\xdf\xa3", Kind("WebM or Matroska", "ffmpeg")),
    (rb"#!AMR", Kind("AMR", "ffmpeg")),
    (rb"\xff[\xf0\xf1\xf8\xf9]|ADIF", Kind("AAC", "ffmpeg")),
    (rb"0&\xb2u\x8ef\xcf\x11", Kind("Windows Media (wma, wmv)", "ffmpeg")),
    (rb"RIFF....AVI ", Kind("AVI", "ffmpeg")),
    (rb"FLV\x01", Kind("Flash video", "ffmpeg")),
    (rb"G.{187}G.{187}G", Kind("MPEG transport stream", "ffmpeg")),
    (rb"\x00\x00\x01\xba", Kind("MPEG programme stream", "ffmpeg")),
    (rb"wvpk", Kind("WavPack", "ffmpeg")),
    (rb"MAC ", Kind("Monkey's Audio", "ffmpeg")),
    (rb"TTA1", Kind("True Audio", "ffmpeg")),
    (rb"\x0bw", Kind("AC-3", "ffmpeg")),
    (rb"ajkg", Kind("shorten, which is not read (turn it into wav first)", "nobody")),
    (rb"version https://git-lfs", Kind("a Git LFS pointer whose audio was not fetched (`git lfs pull`)", "nobody")),
    (rb"(?i)\s*(\xef\xbb\xbf)?\s*<(!doctype html|html|head|body)", Kind("a web page", "nobody")),
    (rb"(?i)\s*(\xef\xbb\xbf)?\s*<\?xml", Kind("XML", "nobody")),
    (rb"\x1f\x8b", Kind("a gzip archive", "nobody")),
    (rb"PK\x03\x04", Kind("a zip archive", "nobody")),
    (rb".{257}ustar", Kind("a tar archive", "nobody")),
    (rb"BZh|\xfd7zXZ|7z\xbc\xaf|Rar!|\x28\xb5\x2f\xfd", Kind("an archive", "nobody")),
    (rb"\x89HDF", Kind("HDF5", "nobody")),
    (rb"\x89PNG|\xff\xd8\xff|GIF8|BM.{4}\x00{4}", Kind("a picture", "nobody")),
    (rb"%PDF", Kind("a PDF", "nobody")),
    (rb"\x7fELF", Kind("a program", "nobody")),
    (rb"\x93NUMPY", Kind("a NumPy array", "nobody")),
)
_KINDS: Final = tuple((re.compile(expression, re.DOTALL), kind) for expression, kind in _SIGNATURES)
_MP3: Final = Kind("MP3", "mp3")
_TEXT: Final = Kind("text", "nobody")


def kind(file: BinaryIO) -> Kind:
    """The kind of ``file``, or `UNKNOWN`; leaves it anywhere. ID3 tags stand before other kinds than MP3 too."""
    place = 0
    file.seek(place)
    while tag := id3_bytes(head := file.read(HEAD_BYTES)):
        place += tag
        file.seek(place)
    found = _kind(head)
    # libsndfile would take these for MP3 too, and print on the terminal.
    return _MP3 if found == UNKNOWN and (place or head[:3] == b"ID3" or head[:1] == b"\xff") else found


def _kind(head: bytes) -> Kind:
    if is_mpeg(head):
        return _MP3
    for expression, found in _KINDS:
        if expression.match(head):
            return found
    return _TEXT if _is_text(head) else UNKNOWN


def id3_bytes(head: bytes) -> int:
    """The length of the ID3v2 tag at the start of ``head``; 0 without one."""
    if len(head) < 10 or head[:3] != b"ID3" or max(head[6:10]) > 127:
        return 0
    size = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
    return 10 + size + (10 if head[5] & 0x10 else 0)  # with a footer


def is_mpeg(head: bytes) -> bool:
    """Whether an MPEG audio frame of layer I, II or III may begin here: AAC's has layer 0."""
    return len(head) >= 4 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 6 != 0 and head[1] & 0x18 != 8


def _is_text(head: bytes) -> bool:
    """Whether ``head`` can only be read as text: UTF-8 without control characters."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # a character may be cut at the end
            return False
        text = head[: error.start].decode()
    return bool(text) and all(letter.isprintable() or letter in "\t\r\n\f" for letter in text)
