"""A pytest plugin: ``--cases FILE`` keeps what the tests marked ``case`` came to, as source → test → outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

WORST_LAST = ("collected", "passed", "skipped", "failed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--cases``."""
    parser.addoption("--cases", type=Path, required=True, help="File for the outcomes of tests marked case.")


def pytest_configure(config: pytest.Config) -> None:
    """Keep outcomes from here on."""
    config.pluginmanager.register(Outcomes(config.getoption("--cases")))


class Outcomes:
    """Keeps the outcomes in ``out``."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.sources: dict[str, list[str]] = {}
        self.outcomes: dict[str, dict[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note which rows each test is for."""
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
