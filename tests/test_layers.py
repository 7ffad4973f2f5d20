"""Holds the house together: a file imports only from lower layers or from earlier files of its own folder."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "allears"
LAYERS = (
    (
        "errors",
        "types",
        "files",
        "processes",
        "seeding",
        "settings",
        "reporting",
        "world",
        "scripts",
        "cleaning",
        "stopping",
        "watching",
        "stores",
    ),
    ("manifest", "audio", "text", "layers", "scoring"),
    ("corpora", "shards", "models", "synthesis"),
    ("loading", "decoding"),
    ("training", "evaluation", "cluster", "pictures", "preflight"),
    ("run",),
    ("demo", "inspection", "audit", "parity", "replay", "bench"),
    ("configs",),
    ("cli",),
)
GROUND = 0


def layer(room: str) -> int:
    for level, rooms in enumerate(LAYERS):
        if room in rooms:
            return level
    raise AssertionError(f"{room} stands in no layer; give it one in {Path(__file__).name}")


def files() -> list[Path]:
    return sorted(
        path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem not in {"__init__", "__main__"}
    )


def imports(path: Path) -> set[tuple[str, ...]]:
    """Dotted parts below ``allears`` of everything that the file imports, delayed and type-only imports included."""
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "allears":
                found |= {(alias.name,) for alias in node.names}
            elif node.module and node.module.startswith("allears."):
                found.add(tuple(node.module.split(".")[1:]))
        elif isinstance(node, ast.Import):
            found |= {tuple(a.name.split(".")[1:]) for a in node.names if a.name.startswith("allears.")}
    return {parts for parts in found if parts != ("__version__",)}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for parts in imports(path):
        if parts[0] == room:
            continue  # order inside a folder: test_no_circles
        other = layer(parts[0])
        assert other <= layer(room), f"{path} imports up: allears.{'.'.join(parts)}"
        assert other < layer(room) or other == GROUND, f"{path} imports sideways: allears.{'.'.join(parts)}"


def test_no_circles() -> None:
    graph = {}
    for path in files():
        name = path.relative_to(SOURCE).with_suffix("").parts
        graph[name[:-1] if name[-1] == "__init__" else name] = imports(path)
    done: set[tuple[str, ...]] = set()

    def visit(name: tuple[str, ...], trail: list[tuple[str, ...]]) -> None:
        assert name not in trail, f"circle: {' → '.join('.'.join(part) for part in [*trail, name])}"
        if name in done or name not in graph:
            return
        for other in sorted(graph[name]):
            visit(other, [*trail, name])
        done.add(name)

    for name in sorted(graph):
        visit(name, [])


def test_the_command_line_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, allears.cli.main; print({'torch','numpy','pydantic','yaml','h5py'} & set(sys.modules) or '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "", done.stdout
