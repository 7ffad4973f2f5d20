"""``allears launch`` in the background, watched from outside: by what it says, by its run, by the kernel's word."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psutil

from proof.rows import ROOT

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

AGAIN = "starting again from the newest checkpoint"
ALONE = {"ALLEARS_THREADS": "1", "OMP_NUM_THREADS": "1"}
LOOK_SECONDS = 0.005
MARK = "ALLEARS_PROOF_STARTED"
"""In the environment of a launcher and so of all that it starts, with a word of its own."""

_HEADER = re.compile(r"^--- \S+ rank (\d+) of (\d+) on \S+, process (\d+)$", re.MULTILINE)


class Launched:
    """One launcher; it and all below are killed at the end of the block.

    Args:
        run: folder of the run.
        settings: of the training, after its config.
        options: of the launcher.
        name: of this launcher among those of the run.
        environment: what it is told besides.
    """

    def __init__(
        self,
        run: Path,
        settings: Sequence[str],
        options: Sequence[object] = ("--processes", 2),
        name: str = "launch",
        **environment: str,
    ) -> None:
        self.run = run
        self.word = f"{run.name}-{name}-{time.monotonic_ns()}"
        self._output = run.with_name(f"{run.name}-{name}.txt")
        self._output.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "allears", "launch", *map(str, options)]
        self.began = time.monotonic()
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--", "train", "digits", *settings, "--out", str(run)],
                cwd=ROOT,
                env={**os.environ, **ALONE, MARK: self.word, **environment},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """No process stays behind a row that could not be measured."""
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        """All that the launcher and the first rank have written."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def until(self, reached: Callable[[], T], seconds: float = 120.0) -> T:
        """Wait for something true.

        Raises:
            RuntimeError: the launcher has ended, or the time is over, before.
        """
        deadline = time.monotonic() + seconds
        while not (found := reached()):
            late = time.monotonic() > deadline
            if late or self.process.poll() is not None:
                what = f"waited {seconds:g} s in vain" if late else f"ended with {self.process.returncode}"
                raise RuntimeError(f"{what}: {self.said()[-2000:]}")
            time.sleep(LOOK_SECONDS)
        return found

    def until_stepped(self, before: set[str], count: int = 1) -> None:
        """Wait until ``count`` steps have been taken since ``before`` were the lines of the run."""
        self.until(lambda: stepped(self.run, before) >= count)

    def end(self, seconds: float = 120.0) -> int:
        """Wait for the exit code.

        Raises:
            RuntimeError: it does not end.
        """
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"does not end within {seconds:g} s: {self.said()[-2000:]}") from None

    def hears(self, number: signal.Signals) -> bool:
        """Whether the launcher catches a signal by now."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:  # noqa: PTH123
            mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
        return bool(mask >> (number - 1) & 1)

    def serves(self, port: int) -> bool:
        """Whether the launcher listens at ``port``."""
        connections = psutil.Process(self.process.pid).net_connections("tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in connections)

    def left(self) -> list[str]:
        """Command lines of processes that it has started and that are still there, ranks too: they inherit its mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.word and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
        return found


def lines(run: Path) -> list[str]:
    """Whole lines of ``metrics.jsonl``, as they stand. A step that is taken again has another one: seconds differ."""
    path = run / "metrics.jsonl"
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


def steps(run: Path) -> list[dict[str, Any]]:
    """Reports of the steps that are done and have not been taken back."""
    return [report for report in map(json.loads, lines(run)) if "loss" in report]


def stepped(run: Path, before: set[str]) -> int:
    """How many steps have been taken since ``before`` were the lines."""
    return sum("loss" in line for line in set(lines(run)) - before)


def attempts(run: Path) -> int:
    """How often a training has begun in ``run``."""
    return len(_headers(run, 0))


def ranks(run: Path) -> list[int]:
    """Process ids of the newest attempt, in the order of ranks; once it has come to its steps."""
    _, size, _ = _headers(run, 0)[-1]
    return [_headers(run, rank)[-1][2] for rank in range(size)]


def _headers(run: Path, rank: int) -> list[tuple[int, int, int]]:
    """Rank, world size and process id of each attempt."""
    path = run / "logs" / f"rank-{rank}.log"
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return [(int(rank), int(size), int(pid)) for rank, size, pid in _HEADER.findall(text)]
