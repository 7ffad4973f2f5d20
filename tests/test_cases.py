"""The link from what goes wrong elsewhere to the tests that build it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from proof import cases

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = """# Cases
Words before | the first table.
## Ranks
| seen in | condition | right behaviour |
| --- | --- | --- |
| one #1, two #2; three | it hangs | it ends |
| four (asked.md #14) | b | c |
## Other
| five #5 | x | y |
"""
MARKED = """
import pytest

@pytest.mark.case("{0}")
@pytest.mark.parametrize("n", [1, 2])
def test_of_two(n):
    assert n == 1

@pytest.mark.case("{0}")
@pytest.mark.case("{1}")
def test_that_passes():
    pass

@pytest.mark.case("{2}")
def test_that_is_skipped():
    pytest.skip("not here")

@pytest.fixture
def broken():
    raise ValueError

@pytest.mark.case("{3}")
def test_without_its_fixture(broken):
    pass

@pytest.mark.case("nobody #0")
def test_of_no_row():
    pass

def test_without_a_mark():
    raise AssertionError("it must not be run")
"""
tables = pytest.mark.skipif(not cases.TABLES.exists(), reason=f"the tables are not at {cases.TABLES}")


def test_rows_are_named_by_their_first_source() -> None:
    first, second, third = cases.cases(SAMPLE)
    assert first == cases.Case("one #1", "Ranks", "it hangs", "it ends")
    assert second == cases.Case("four (asked.md #14)", "Ranks", "b", "c")
    assert third == cases.Case("five #5", "Other", "x", "y")


@tables
def test_the_tables_are_whole_and_no_source_names_two_rows() -> None:
    rows = cases.cases(cases.TABLES.read_text(encoding="utf-8"))
    assert len({row.source for row in rows}) == len(rows) > 25
    assert all(row.condition and row.right for row in rows)


@tables
def test_each_mark_names_a_row(request: pytest.FixtureRequest) -> None:
    known = {row.source for row in cases.cases(cases.TABLES.read_text(encoding="utf-8"))}
    marked = {(mark.args[0], item.name) for item in request.session.items for mark in item.iter_markers("case")}
    assert [pair for pair in sorted(marked) if pair[0] not in known] == []


@tables
def test_outcomes_are_told_of_each_row(tmp_path: Path) -> None:
    sources = [row.source for row in cases.cases(cases.TABLES.read_text(encoding="utf-8"))]
    (tmp_path / "test_marked.py").write_text(MARKED.format(*sources))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = case: row\n")
    found = cases.check(tests=tmp_path)
    told = [{name.rpartition("::")[2]: outcome for name, outcome in row.outcomes.items()} for row in found.rows]
    assert told[:4] == [
        {"test_of_two": "failed", "test_that_passes": "passed"},
        {"test_that_passes": "passed"},
        {"test_that_is_skipped": "skipped"},
        {"test_without_its_fixture": "failed"},
    ]
    assert [row.case.source for row in found.rows if row.holds] == [sources[1]]
    assert [row.case.source for row in found.failing] == [sources[0], *sources[2:4]]
    assert [row.source for row in found.without] == sources[4:]
    assert found.strangers == ["nobody #0"]
    assert found.said.startswith("1 failed, 3 passed, 1 skipped, 1 deselected, 1 error")
    some = cases.check(found.rows[0].case.section, tests=tmp_path)  # all that are marked but the one of no row
    assert some.rows == found.rows[: len(some.rows)]
    assert some.said.startswith("1 failed, 2 passed, 1 skipped")
    (row, *_) = cases.check(tests=tmp_path, run=False).rows
    assert set(row.outcomes.values()) == {"collected"}
    assert not row.holds
