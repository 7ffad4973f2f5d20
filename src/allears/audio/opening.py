"""Which decoder opens a file, and why none does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, BinaryIO

from allears.audio import ffmpeg, flac, mp3, ogg, sphere, wav
from allears.audio.decode import UNREADABLE
from allears.audio.kinds import Kind, kind
from allears.audio.libsndfile import Refused, Sndfile
from allears.errors import AudioError

if TYPE_CHECKING:
    from allears.audio.forward import Decoder


def opened(file: BinaryIO, name: str, path: str | None = None) -> Decoder:
    """A decoder of ``file``, which stays open as long as it; ``name`` stands in errors.

    Args:
        file: the bytes, from which it may be read in any order.
        name: what the file is called.
        path: where the same bytes lie as a file, if they do: libsndfile reads it faster by itself.

    Raises:
        AudioError: nothing reads it, or it is damaged where that shows at once.
    """
    found = kind(file)
    if found.reader == "nobody":
        raise AudioError(UNREADABLE, f"{name} is not audio that can be read: it is {found.name}.")
    if found.reader == "mp3" or (found.name == "wav" and wav.holds_mpeg(file)):
        return mp3.opened(file, name) or _by_others(file, name, "no MP3 frames are in it")
    if found.reader == "ffmpeg":
        return _by_ffmpeg(file, name, found)
    return _by_libsndfile(file, name, path, found)


def _by_libsndfile(file: BinaryIO, name: str, path: str | None, found: Kind) -> Decoder:
    """What libsndfile is asked first about; MP3 behind other bytes, and ffmpeg's part, are tried where it refuses."""
    promised = sphere.promised(file, name) if found.reader == "sphere" else None
    if found.reader == "ogg":
        ogg.check(file, name)
    try:
        # Where no header was known, libsndfile would guess from the name's end.
        decoder = Sndfile(path if path and found.name else file, name)
    except Refused as error:
        if found.name == "wav":
            wav.check_single(file, name)
        return (None if found.name else mp3.opened(file, name)) or _by_others(file, name, str(error))
    if decoder.is_endless and found.name == "FLAC":
        decoder.close()
        decoder = Sndfile(flac.with_length(file, name), name)
    if decoder.frames == 0 and found.name == "wav" and (place := wav.without_length(file)) is not None:
        decoder.close()
        decoder = Sndfile(wav.endless(file, place), name)
    if promised is not None:
        decoder.promised = promised
    return decoder


def _by_others(file: BinaryIO, name: str, why: str) -> Decoder:
    """What libsndfile or MP3's frames do not open, because of ``why``."""
    if ffmpeg.is_installed():
        with contextlib.suppress(ffmpeg.Refused, AudioError):  # why it was refused first is nearer to the truth
            return ffmpeg.Container(file, name)
    file.seek(0)
    if not file.read().strip(b"\0"):
        why = "it is nothing but zeros, as a copy or download leaves that did not end"
    raise AudioError(UNREADABLE, f"{name} is not audio that can be read: {why}.")


def _by_ffmpeg(file: BinaryIO, name: str, found: Kind) -> Decoder:
    if not ffmpeg.is_installed():
        raise AudioError(UNREADABLE, f"{name} is {found.name}, which needs PyAV; {ffmpeg.REMEDY}.")
    try:
        return ffmpeg.Container(file, name)
    except ffmpeg.Refused as error:
        raise AudioError(UNREADABLE, f"{name} is not {found.name} that can be read: {error}.") from error
