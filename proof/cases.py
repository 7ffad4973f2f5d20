"""Which tests hold the rows of cases.md, what goes wrong elsewhere, and whether they pass: ``python -m proof.cases``.

A test that builds the condition of a row is marked ``@pytest.mark.case("espnet #3125")``, with the row's first source.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from proof.rows import ROOT

TABLES = ROOT.parent / "shared" / "cases.md"


@dataclass(frozen=True)
class Case:
    """A row.

    Attributes:
        source: where it was seen first; tests name it by this.
        section: the heading above it.
        condition: what is built.
        right: what must happen then.
    """

    source: str
    section: str
    condition: str
    right: str


@dataclass(frozen=True)
class Held:
    """A row and what its tests came to: ``outcomes``, test → passed, failed, skipped, or collected where none was run.

    A test with parameters is one test, and comes to the worst of its outcomes.
    """

    case: Case
    outcomes: dict[str, str]

    @property
    def holds(self) -> bool:
        """Whether there are tests, and all of them passed."""
        return set(self.outcomes.values()) == {"passed"}


@dataclass(frozen=True)
class Found:
    """All rows, pytest's last line, and sources that are marked but stand in no row, of those that were run."""

    rows: list[Held]
    said: str
    strangers: list[str]

    @property
    def without(self) -> list[Case]:
        """Rows that no test is marked for."""
        return [row.case for row in self.rows if not row.outcomes]

    @property
    def failing(self) -> list[Held]:
        """Rows whose tests did not all pass."""
        return [row for row in self.rows if row.outcomes and not row.holds]


def cases(text: str) -> list[Case]:
    """The rows of all tables of ``text`` (Markdown), in their order."""
    found = []
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").strip()
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or cells[0] == "seen in" or set(cells[0]) <= set("-: "):
            continue
        found.append(Case(re.split("[,;]", cells[0])[0].strip(), section, *cells[1:3]))
    return found


def check(*sections: str, run: bool = True, tests: Path = ROOT / "tests") -> Found:
    """Run the marked tests, or with ``run`` false just collect them, and say what they come to for each row.

    Args:
        sections: whose rows are told of, and whose tests are run; none means all.
        run: whether the tests are run.
        tests: where they are.

    Raises:
        RuntimeError: the tests could not be collected.
    """
    rows = cases(TABLES.read_text(encoding="utf-8"))
    chosen = [row for row in rows if not sections or row.section in sections]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "outcomes.json"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "case", "-p", "proof.case_plugin", f"--cases={out}"]
        command += [f"--case={row.source}" for row in chosen if sections]
        command += [str(tests), *([] if run else ["--collect-only"])]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode not in {0, 1}:  # 1: some tests failed
            raise RuntimeError(f"pytest left with {done.returncode}\n{done.stdout}\n{done.stderr}")
        outcomes: dict[str, dict[str, str]] = json.loads(out.read_text(encoding="utf-8"))
    known = {row.source for row in rows}
    told = [Held(row, outcomes.get(row.source, {})) for row in chosen]
    return Found(told, done.stdout.splitlines()[-1].strip("= "), sorted(set(outcomes) - known))


def main() -> None:
    """``python -m proof.cases [--collect] [SECTION…]``: a line for each row; exit code 0 when all hold."""
    sections = [word for word in sys.argv[1:] if word != "--collect"]
    run = "--collect" not in sys.argv
    found = check(*sections, run=run)
    for row in found.rows:
        worst = (
            "no test" if not row.outcomes else "holds" if row.holds else ", ".join(sorted(set(row.outcomes.values())))
        )
        print(f"{worst:<9} {row.case.source:<24} {row.case.condition}")
        for name, outcome in row.outcomes.items():
            print(f"          {outcome:<9} {name}")
    for source in found.strangers:
        print(f"stands in no row: {source}")
    print(f"{len(found.rows)} rows, {len(found.without)} without a test; pytest: {found.said}")
    sys.exit(0 if all(row.holds for row in found.rows) and not found.strangers else 1)


if __name__ == "__main__":
    main()
