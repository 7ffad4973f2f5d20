"""Python processes forked from one that has loaded torch: each takes 2 s of a core less than one that is started.

``python -m tests.forked`` reads a line of JSON for each request and answers with a line: a process to start, with its
process id; a process id, with its exit code or null. Modules of allears are loaded by each process in its own order.
"""

from __future__ import annotations

import gc
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

ALLEARS = "from allears.cli.main import main; main()"
SECONDS = 240
"""A process that takes longer is killed."""


class Forked:
    """A process that runs; what it says is in ``stdout`` and ``stderr``."""

    def __init__(self, server: Server, pid: int, stdout: Path, stderr: Path) -> None:
        self._server = server
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(self.pid)
        return self.returncode

    def wait(self, timeout: float = 2 * SECONDS) -> int:
        """Its exit code; after ``timeout`` seconds an error."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, self.stderr.read_text()
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """Starts the process to fork from, which ends with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked"],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def start(self, *arguments: object, code: str = ALLEARS, **environment: str) -> Forked:
        """Run ``code`` as ``__main__``, with ``arguments`` in ``sys.argv[1:]``."""
        number = next(self._numbers)
        stdout, stderr = (self._folder / f"{number}.{name}" for name in ("stdout", "stderr"))
        request = {
            "code": code,
            "arguments": [*map(str, arguments)],
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", **environment},
            "folder": str(Path.cwd()),
            "files": [os.devnull, str(stdout), str(stderr)],
        }
        return Forked(self, self.ask(request), stdout, stderr)


def run(request: dict[str, Any]) -> None:
    signal.alarm(SECONDS)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
    for number, path in enumerate(request["files"]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["allears", *request["arguments"]]
    exec(request["code"], {"__name__": "__main__"})  # noqa: S102


def serve() -> None:
    import h5py  # noqa: F401
    import pydantic  # noqa: F401
    import soundfile  # noqa: F401
    import torch  # noqa: F401
    import typer  # noqa: F401

    gc.freeze()  # else the first collection of each process copies all pages with objects
    processes: dict[int, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if isinstance(request, int):
            print(json.dumps(processes[request].exitcode), flush=True)
            continue
        process = multiprocessing.get_context("fork").Process(target=run, args=(request,))
        process.start()
        assert process.pid is not None
        processes[process.pid] = process
        print(process.pid, flush=True)
    for process in processes.values():  # what a test that failed has left
        process.kill()


if __name__ == "__main__":
    serve()
