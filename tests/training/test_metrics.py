from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from allears.training.metrics import Metrics

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_of_steps_that_will_be_taken_again_and_broken_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "a": 1}\n{"step": 1}\n[]\n{"step": 2}\n{"ste')
    with Metrics(tmp_path, 2) as metrics:
        metrics.validation(3, "dev", {"wer": 0.5}, "wer")
        metrics.digests(2, {"w": "0"})
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert steps == [0, 1, 2]
    assert not (tmp_path / "digests.jsonl").exists()


def test_a_line_that_cannot_be_written_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from allears.training.metrics import Metrics\n"
        "metrics = Metrics(Path(sys.argv[1]), 0); resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "try: metrics.validation(1, 'dev' * 99, {'wer': 0.5}, 'wer')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("DataError")
    assert "metrics.jsonl cannot be written: File too large" in done.stdout
