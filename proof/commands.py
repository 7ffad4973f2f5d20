"""How rows run the command line: real processes, results from their last JSON line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from proof.rows import ROOT

PLACE = Path(tempfile.gettempdir()) / "allears-proof"


def run(
    *arguments: object, cwd: Path = ROOT, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is shown when it fails."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def allears(*arguments: object) -> dict[str, Any]:
    """Run the command line and read its last JSON line."""
    found: dict[str, Any] = json.loads(
        run(sys.executable, "-m", "allears", *arguments, "--json").stdout.splitlines()[-1]
    )
    return found


def losses(out: Path) -> list[float]:
    """Loss of each step of a run."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]
