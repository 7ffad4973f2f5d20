"""A process that records: ``python -m allears.synthesis.worker PARENT``; one JSON message a line in, one out.

Messages: ``bank`` (sentences for babble, no reply), ``record`` (an order and a folder → samples of its file), ``speak``
(an order → base64 of its int16 samples), ``phonemes`` (a text and a voice). A reply is ``{"ok": …}`` or
``{"error": sentence}``.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from allears.errors import SynthesisError
from allears.processes import tie_to
from allears.synthesis.recording import Order, babble_bank, record, rounded, spoken
from allears.synthesis.voicebox import Voicebox
from allears.synthesis.voices import Speaker


def _order(fields: dict[str, Any]) -> Order:
    return Order(**{**fields, "speaker": Speaker(**fields["speaker"])})


class Worker:
    """A voice box, the bank of babble, and an answer to each message."""

    def __init__(self, voicebox: Voicebox) -> None:
        self.voicebox = voicebox
        self.bank = np.zeros(0, dtype=np.float32)

    def fill_bank(self, sentences: list[list[Any]]) -> None:
        """Speak the sentences that babble is cut from."""
        self.bank = babble_bank(self.voicebox, [(text, Speaker(**speaker)) for text, speaker in sentences])

    def result(self, message: dict[str, Any]) -> object:
        """What ``message`` asks for."""
        if "record" in message:
            return record(self.voicebox, _order(message["record"]), self.bank, Path(message["folder"]))
        if "speak" in message:
            order = _order(message["speak"])
            return base64.b64encode(rounded(spoken(self.voicebox, order.text, order.speaker)).tobytes()).decode()
        return self.voicebox.phonemes(*message["phonemes"])

    def reply(self, line: bytes) -> object:
        """The answer to one line; None where there is none."""
        message = json.loads(line)
        try:
            if "bank" in message:
                self.fill_bank(message["bank"])
                return None
            return {"ok": self.result(message)}
        except SynthesisError as error:
            return {"error": str(error)}
        except (OSError, soundfile.LibsndfileError) as error:
            reason = str(error).rstrip(".")
            return {"error": f"{message.get('folder')} could not be written: {reason}; check its disk and permissions."}


def main() -> None:
    """Answer until standard input ends or the parent does."""
    tie_to(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it ends this process
    with Voicebox() as voicebox:
        worker = Worker(voicebox)
        for line in sys.stdin.buffer:
            answer = worker.reply(line)
            if answer is not None:
                print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
