"""The process that forks for each utterance: ``python -m allears.synthesis.voicebox PARENT``.

It holds an espeak-ng that has not spoken, and little else: no numpy, no thread, so that a fork costs 0.6 ms and not
2 ms or more (measured). A request is a line of JSON, the name of a method of `Engine` and its arguments; an answer is
``+`` or ``-``, its length in four bytes, and the result or the reason.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from allears.errors import SynthesisError
from allears.processes import tie_to
from allears.synthesis.espeak import Engine, in_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_HEAD = struct.Struct("<cI")


class Voicebox:
    """The other end: starts the process, asks, and ends it."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "allears.synthesis.voicebox", str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, method: str, *arguments: str | int) -> bytes:
        try:
            self._to.write(json.dumps([method, *arguments]).encode() + b"\n")
            self._to.flush()
            sign, length = _HEAD.unpack(self._from.read(_HEAD.size))
        except (BrokenPipeError, struct.error) as error:
            raise SynthesisError(
                f"espeak-ng's process ended with status {self._process.wait()}; run the same command again, "
                "it goes on where it stopped."
            ) from error
        answer = self._from.read(length)
        if sign == b"-":
            raise SynthesisError(answer.decode())
        return answer

    def pcm(self, text: str, voice: str, pitch: int, rate: int, seed: int) -> bytes:
        """``text`` as int16 samples at `allears.synthesis.espeak.ESPEAK_RATE`: a function of the arguments alone."""
        return self._ask("pcm", text, voice, pitch, rate, seed)

    def phonemes(self, text: str, voice: str) -> str:
        """How espeak-ng reads ``text``, in its own phoneme letters."""
        return self._ask("phonemes", text, voice).decode()


def _answer(engine: Engine, request: bytes) -> bytes:
    """The framed answer to one request, made in a child of its own."""
    method, *arguments = json.loads(request)
    speaking: Callable[..., bytes] = engine.phonemes if method == "phonemes" else engine.pcm
    try:
        sign, answer = b"+", in_child(lambda: speaking(*arguments))
    except SynthesisError as error:
        sign, answer = b"-", str(error).encode()
    return _HEAD.pack(sign, len(answer)) + answer


def _refuse(reason: str) -> None:
    """Answer the first request with ``reason``."""
    sys.stdin.buffer.readline()
    sys.stdout.buffer.write(_HEAD.pack(b"-", len(reason.encode())) + reason.encode())
    sys.stdout.buffer.flush()


def main() -> None:
    """Answer until standard input ends or the parent does."""
    tie_to(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        engine = Engine()
    except SynthesisError as error:
        _refuse(str(error))
        return
    gc.collect()
    gc.freeze()  # else a collection in a child would write to every object, and so copy every page
    for request in sys.stdin.buffer:
        sys.stdout.buffer.write(_answer(engine, request))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
