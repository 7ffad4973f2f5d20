"""Several speaking processes at once, and the one-off calls `speak` and `phonemes`."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import itertools
import json
import os
import selectors
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from allears.errors import SynthesisError
from allears.synthesis.espeak import MISSING
from allears.synthesis.recording import Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from numpy.typing import NDArray

    from allears.synthesis.voices import Speaker

AHEAD = 2
"""Messages that a worker holds: one at work and one in its pipe, so that it never waits for this process."""

LINGER_SECONDS = 2.0
"""How long a worker may take to end by itself."""


class _Worker:
    """One process and the lines that it has sent."""

    def __init__(self) -> None:
        # One thread each: the processes are the parallelism, and threads make a fork slow and unsafe.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", "allears.synthesis.worker", str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._received = b""
        self.places: list[int] = []

    def fileno(self) -> int:
        """What a selector waits for."""
        return self._from.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Write one line; when the worker is gone, `answers` says so."""
        with contextlib.suppress(BrokenPipeError):
            self._to.write(json.dumps(message).encode() + b"\n")
            self._to.flush()

    def answers(self) -> Iterator[Any]:
        """The content of the lines that have come; waits for at least a part of one."""
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            raise SynthesisError(
                f"A speaking process ended with status {self._process.wait()} before its answer; "
                "run the same command again, it goes on where it stopped."
            )
        *lines, self._received = (self._received + data).split(b"\n")
        for answer in map(json.loads, lines):
            if "error" in answer:
                raise SynthesisError(answer["error"])
            yield answer["ok"]

    def hang_up(self) -> None:
        """Tell it to end, after the utterance at work."""
        with contextlib.suppress(BrokenPipeError):
            self._to.close()

    def end(self) -> None:
        """Wait until it has ended its own child, so that no dead process is left behind; kill it if it lingers."""
        try:
            self._process.wait(timeout=LINGER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._from.close()


class Pool:
    """``processes`` workers; a dead or failing one is a `SynthesisError`, and none outlives this process."""

    def __init__(self, processes: int) -> None:
        if importlib.util.find_spec("espeakng_loader") is None:
            raise SynthesisError(MISSING)
        self._processes = processes
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        self._workers = [_Worker() for _ in range(self._processes)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.end()

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message without a reply to every worker."""
        for worker in self._workers:
            worker.send(message)

    def answers(self, messages: Iterable[dict[str, Any]]) -> Iterator[tuple[int, Any]]:
        """The place of each message and its answer, as they come; which worker gets which is left to chance."""
        waiting = enumerate(messages)

        def feed(worker: _Worker) -> None:
            for place, message in itertools.islice(waiting, AHEAD - len(worker.places)):
                worker.send(message)
                worker.places.append(place)

        with selectors.DefaultSelector() as ready:
            for worker in self._workers:
                ready.register(worker, selectors.EVENT_READ, worker)
                feed(worker)
            while any(worker.places for worker in self._workers):
                for event, _ in ready.select():
                    for answer in event.data.answers():
                        yield event.data.places.pop(0), answer
                    feed(event.data)


def _asked(message: dict[str, Any]) -> Any:
    """One message to a worker of its own."""
    with Pool(1) as pool:
        return next(pool.answers([message]))[1]


def speak(text: str, speaker: Speaker) -> NDArray[np.int16]:
    """``text`` as 16 kHz samples [samples], at espeak's own level: a function of its arguments alone.

    It starts a process (0.2 s); for many sentences use `allears.synthesis.corpus.synthesize`.
    """
    encoded = _asked({"speak": asdict(Order("", text, speaker))})
    return np.frombuffer(base64.b64decode(encoded), dtype=np.int16)


def phonemes(text: str, voice: str) -> str:
    """How espeak-ng reads ``text`` with ``voice`` (``en-us``, ``cmn``), in its own phoneme letters."""
    read: str = _asked({"phonemes": [text, voice]})
    return read
