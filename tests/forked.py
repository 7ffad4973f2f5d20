"""Runs command lines in processes forked from this one, which has loaded torch: 2 s of a core less for each.

Reads a line of JSON for each: its arguments, environment and folder, and the files for its stdout and stderr. Answers
with a line when it has ended: its exit code. Modules of allears are loaded by each process itself, in its own order.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
from typing import Any

SECONDS = 240
"""A process that takes longer is killed."""


def run(request: dict[str, Any]) -> None:
    """Become what ``python -m allears`` would be."""
    signal.alarm(SECONDS)
    for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["allears", *request["arguments"]]
    from allears.cli.main import main

    main()


def serve() -> None:
    import h5py  # noqa: F401
    import pydantic  # noqa: F401
    import soundfile  # noqa: F401
    import torch  # noqa: F401
    import typer  # noqa: F401

    gc.freeze()  # else the first collection of each process copies all pages with objects
    for line in sys.stdin:
        process = multiprocessing.get_context("fork").Process(target=run, args=(json.loads(line),))
        process.start()
        process.join()
        print(process.exitcode, flush=True)


if __name__ == "__main__":
    serve()
