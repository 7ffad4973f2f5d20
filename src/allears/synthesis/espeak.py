"""espeak-ng through ctypes, from the library and the data of the ``espeakng-loader`` wheel.

Two equal calls in one process differ, because pitch contours and filters keep state. So an `Engine` is initialised
and then never speaks itself: each utterance is spoken in a child forked from it (`in_child`), whose state is always
that of a fresh library. With its random seed set, the output is a function of (text, voice, pitch, rate, seed) alone.
Output is synchronous; the asynchronous mode waits for a thread that a fork does not copy, and hangs.

Constants are those of ``speak_lib.h``, espeak-ng 1.52.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from allears.errors import SynthesisError
from allears.processes import tie_to

if TYPE_CHECKING:
    from collections.abc import Callable

ESPEAK_RATE = 22_050
"""Samples per second that espeak-ng gives."""

MISSING = (
    "The speech synthesiser espeak-ng is missing: the package espeakng_loader is not installed; "
    "install it with: pip install 'allears[synth]'."
)

_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_UTF8 = 1
_RATE, _VOLUME, _PITCH = 1, 2, 3
_QUIET = 25  # at 100, its default, 14 variants reach full scale, and espeak turns them down in mid-word; at 50 still 3
_CHILD_SECONDS = 60
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def _located() -> tuple[str, Path]:
    """The library and its data folder."""
    try:
        import espeakng_loader
    except ImportError as error:
        raise SynthesisError(MISSING) from error
    return espeakng_loader.get_library_path(), Path(espeakng_loader.get_data_path())


class Engine:
    """An initialised espeak-ng that has not spoken yet; one per process.

    It changes the process's working folder: espeak-ng keeps at most 160 bytes of its data path, fewer than a deep
    virtual environment needs, and reads dictionaries from it whenever a voice is set.
    """

    def __init__(self) -> None:
        library, data = _located()
        os.chdir(data.parent)
        self._library = ctypes.CDLL(library)
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self._library.espeak_ng_SetRandSeed.argtypes = (ctypes.c_long,)
        self._spoken = bytearray()
        self._callback = _Callback(self._collect)  # kept: ctypes frees a callback that nobody holds
        rate = self._library.espeak_Initialize(_SYNCHRONOUS, 0, b".", _DO_NOT_EXIT)
        if rate != ESPEAK_RATE:
            raise SynthesisError(
                f"espeak-ng could not read its data in {data}: it reports {rate} samples per second, not "
                f"{ESPEAK_RATE}; install it again with: pip install --force-reinstall espeakng-loader."
            )
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_ListVoices(None)  # else each child reads 200 files to find its voice: 2 ms of 9

    def _collect(self, samples: int | None, count: int, _events: int | None) -> int:
        """Take what espeak hands over; 0 tells it to go on."""
        if samples and count > 0:
            self._spoken += ctypes.string_at(samples, 2 * count)
        return 0

    def _set_voice(self, voice: str) -> None:
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise SynthesisError(f"espeak-ng has no voice {voice!r}; use one of allears.synthesis.voices.")

    def pcm(self, text: str, voice: str, pitch: int, rate: int, seed: int) -> bytes:
        """``text`` as int16 samples at `ESPEAK_RATE`; to be called once, in a child of its own (`in_child`)."""
        self._set_voice(voice)
        self._library.espeak_ng_SetRandSeed(seed)
        for parameter, value in ((_RATE, rate), (_PITCH, pitch), (_VOLUME, _QUIET)):
            self._library.espeak_SetParameter(parameter, value, 0)
        data = text.encode() + b"\0"
        size, start, whole = ctypes.c_size_t(len(data)), ctypes.c_uint(0), ctypes.c_uint(0)
        status = self._library.espeak_Synth(data, size, start, 0, whole, ctypes.c_uint(_UTF8), None, None)
        if status != 0 or not any(self._spoken):
            raise SynthesisError(
                f"espeak-ng spoke nothing (status {status}) of {text!r} with voice {voice!r}; "
                "give it a text with letters and a voice of allears.synthesis.voices."
            )
        return bytes(self._spoken)

    def phonemes(self, text: str, voice: str) -> bytes:
        """How espeak-ng reads ``text``, in its own phoneme letters, UTF-8; to be called in a child like `pcm`."""
        self._set_voice(voice)
        rest = ctypes.c_char_p(text.encode())
        clauses = []
        while rest:
            clauses.append(self._library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, 0))
        return b" ".join(clauses)


def in_child(make: Callable[[], bytes]) -> bytes:
    """Run ``make`` in a forked child and return what it returns; an error there is a `SynthesisError` here."""
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(make, writing, parent)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer[:1] == b"+":
        return answer[1:]
    reason = answer[1:].decode() or f"the speaking process ended with status {os.waitstatus_to_exitcode(status)}"
    raise SynthesisError(reason)


def _child(make: Callable[[], bytes], writing: int, parent: int) -> None:
    """The child's whole life: the answer is ``+`` and the result, or ``-`` and a reason. Never returns."""
    try:
        tie_to(parent)
        signal.alarm(_CHILD_SECONDS)  # a hanging synthesiser is killed, and reported as such
        try:
            answer = b"+" + make()
        except Exception as error:  # noqa: BLE001 (whatever it is, the parent raises it)
            answer = b"-" + (str(error) if isinstance(error, SynthesisError) else repr(error)).encode()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)
