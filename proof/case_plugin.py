"""A pytest plugin: ``--cases FILE`` keeps what the tests marked ``case`` came to, as source → test → outcome.

``--case SOURCE`` runs just the tests that are marked so; any number of times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

WORST_LAST = ("collected", "passed", "skipped", "failed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add both."""
    parser.addoption("--cases", type=Path, required=True, help="File for the outcomes of tests marked case.")
    parser.addoption("--case", action="append", default=[], help="Source of a row whose tests are run; default: all.")


def pytest_configure(config: pytest.Config) -> None:
    """Keep outcomes from here on."""
    config.pluginmanager.register(Outcomes(config.getoption("--cases"), set(config.getoption("--case"))))


class Outcomes:
    """Keeps the outcomes in ``out`` of the tests for the rows ``of``, or of all if that is empty."""

    def __init__(self, out: Path, of: set[str]) -> None:
        self.out = out
        self.of = of
        self.sources: dict[str, list[str]] = {}
        self.outcomes: dict[str, dict[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note which rows each test is for, and leave out those of other rows."""
        if self.of:
            items[:] = [item for item in items if self.of & {mark.args[0] for mark in item.iter_markers("case")}]
        for item in items:
            self.sources[item.nodeid] = [mark.args[0] for mark in item.iter_markers("case")]
            self._note(item.nodeid, "collected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test passes when its call does; a failure before or after it counts too."""
        if report.when == "call" or not report.passed:
            self._note(report.nodeid, report.outcome)

    def pytest_sessionfinish(self) -> None:
        """Write what was kept."""
        self.out.write_text(json.dumps(self.outcomes), encoding="utf-8")

    def _note(self, node: str, outcome: str) -> None:
        for source in self.sources[node]:
            tests = self.outcomes.setdefault(source, {})
            name = node.partition("[")[0]
            tests[name] = max(tests.get(name, "collected"), outcome, key=WORST_LAST.index)
