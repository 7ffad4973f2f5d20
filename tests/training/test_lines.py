"""Files of steps are taken back to where a run goes on from, by reading just their ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allears.training import lines
from allears.training.lines import StepLines

if TYPE_CHECKING:
    from pathlib import Path


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=12),
    st.sampled_from(["", '{"step": 1', '{"step', "\n"]),
    st.integers(0, 14),
    st.sampled_from([1, 7, 64, 1 << 16]),
)
def test_lines_from_a_step_on_and_a_torn_end_are_taken_back(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]], torn: str, start: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a" / "lines.jsonl"
    step, written = 0, []
    for more, length in parts:
        step += more
        written.append(json.dumps({"step": step, "text": "ü" * length}) + "\n")
    path.parent.mkdir()
    path.write_text("".join(written) + torn, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK", block)
        with StepLines(path, start) as file:
            file.add({"step": start})
    kept = [line for line in written if json.loads(line)["step"] < start]
    assert path.read_text(encoding="utf-8") == "".join([*kept, json.dumps({"step": start}) + "\n"])


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    with StepLines(tmp_path / "new" / "lines.jsonl", 5) as file:
        file.add({"step": 5})
    assert (tmp_path / "new" / "lines.jsonl").read_text() == '{"step": 5}\n'
