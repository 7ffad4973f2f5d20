"""A process that speaks: ``python -m allears.synthesis.worker PARENT``; one JSON message a line in, one out.

It loads little and starts no thread, so that a fork costs about a millisecond. Messages: ``bank`` (sentences for
babble, no reply), ``record`` (an order and a folder → ``frames``), ``speak`` (an order → base64 of its int16 samples),
``phonemes`` (a text and a voice → ``phonemes``). A reply is ``{"ok": …}`` or ``{"error": sentence}``.
"""

from __future__ import annotations

import base64
import gc
import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from allears.errors import SynthesisError
from allears.synthesis.espeak import Engine, die_with_parent, in_child
from allears.synthesis.recording import Order, babble_bank, record, rounded, spoken
from allears.synthesis.voices import Speaker


def _order(fields: dict[str, Any]) -> Order:
    return Order(**{**fields, "speaker": Speaker(**fields["speaker"])})


class Worker:
    """The engine, the bank of babble, and an answer to each message."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.bank = np.zeros(0, dtype=np.float32)
        # What is alive now stays: without this, the collector of each child would copy every page.
        gc.collect()
        gc.freeze()

    def fill_bank(self, sentences: list[list[Any]]) -> None:
        """Speak the sentences that babble is cut from."""
        self.bank = babble_bank(self.engine, [(text, Speaker(**speaker)) for text, speaker in sentences])

    def result(self, message: dict[str, Any]) -> bytes:
        """What ``message`` asks for, as JSON; runs in a child."""
        if "record" in message:
            return b"%d" % record(self.engine, _order(message["record"]), self.bank, Path(message["folder"]))
        if "speak" in message:
            order = _order(message["speak"])
            samples = rounded(spoken(self.engine, order.text, order.speaker))
            return json.dumps(base64.b64encode(samples.tobytes()).decode()).encode()
        return json.dumps(self.engine.phonemes(*message["phonemes"])).encode()

    def reply(self, line: bytes) -> bytes | None:
        """One line of answer; None where there is none."""
        message = json.loads(line)
        try:
            if "bank" in message:
                self.fill_bank(message["bank"])
                return None
            return b'{"ok": %b}\n' % in_child(lambda: self.result(message))
        except SynthesisError as error:
            return json.dumps({"error": str(error)}).encode() + b"\n"


def main() -> None:
    """Answer until standard input ends or the parent does."""
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it ends this process
    try:
        worker = Worker()
    except SynthesisError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return
    for line in sys.stdin.buffer:
        answer = worker.reply(line)
        if answer is not None:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
