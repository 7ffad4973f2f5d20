"""A row: a claim, the figure that was measured, and whether the claim is true; printed, and kept in docs/proof.md."""

from __future__ import annotations

import datetime as dt
import subprocess
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "docs" / "proof.md"
HEAD = '# What was measured\n\nWritten by `make proof NAME=…`; a row for each line of an issue\'s "Shows".\n'


@dataclass(frozen=True)
class Measured:
    """What a row found."""

    figure: str
    true: bool


@dataclass(frozen=True)
class Row:
    """A claim and how it is measured."""

    line: int
    claim: str
    measure: Callable[[], Measured]


def prove(name: str, rows: list[Row]) -> bool:
    """Measure ``rows`` one after another, print and keep each; whether all are true."""
    results = [_measured(name, row) for row in rows]
    return all(results)


def _measured(name: str, row: Row) -> bool:
    try:
        found = row.measure()
    except Exception as error:  # noqa: BLE001 (a row that cannot be measured is false, and the next one is measured)
        traceback.print_exc()
        found = Measured(f"not measured: {type(error).__name__}: {str(error)[-300:]}", true=False)
    commit = _git("rev-parse", "--short", "HEAD") + (
        "+" if _git("status", "--porcelain", "--", ".", ":!docs/proof.md") else ""
    )
    date = dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d")
    cells = [str(row.line), row.claim, found.figure, "true" if found.true else "**false**", date, commit]
    line = "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"
    print(line, flush=True)
    _keep(name, row.line, line)
    return found.true


def _keep(name: str, number: int, line: str) -> None:
    """Put ``line`` in its place in the section ``name`` of docs/proof.md."""
    text = KEPT.read_text(encoding="utf-8") if KEPT.exists() else HEAD
    title = f"\n## {name}\n\n| line | claim | figure | | date | commit |\n| --- | --- | --- | --- | --- | --- |\n"
    if title not in text:
        text += title
    before, _, rest = text.partition(title)
    section, gap, after = rest.partition("\n\n## ")
    rows = {int(kept.split("|")[1]): kept for kept in section.splitlines() if kept.startswith("| ")}
    rows[number] = line
    body = "\n".join(rows[n] for n in sorted(rows))
    KEPT.write_text(before + title + body + ("\n" if not gap else "") + gap.replace("\n\n", "\n\n") + after, "utf-8")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
