"""``python -m proof NAME [LINE…]``: measure an issue's lines, all of them or those that are named."""

from __future__ import annotations

import importlib
import sys

from proof.rows import prove


def main() -> None:
    """Exit with 0 when every measured row is true."""
    name, *lines = sys.argv[1:]
    rows = importlib.import_module(f"proof.{name.replace('-', '_')}").ROWS
    chosen = [row for row in rows if not lines or str(row.line) in lines]
    sys.exit(0 if prove(name, chosen) else 1)


main()
