"""The README's tree is true, its commands exist, and both languages show the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "allears"
READMES = ("README.md", "README.zh-CN.md")


def tree(readme: str) -> set[str]:
    """Files that the tree names, relative to the package; a line without a folder goes on with the one above."""
    block = (ROOT / readme).read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    found: set[str] = set()
    folder = ""
    for line in block.splitlines()[1:]:
        if line.startswith("tests/"):
            break
        head = re.match(r"  ([\w]+)/", line)
        if head:
            folder = head.group(1) + "/"
        elif re.match(r"  \w", line):
            folder = ""
        found |= {folder + name for name in re.findall(r"\b\w+\.py\b", line)}
        if head and not re.search(r"\.py\b", line):
            found.add(folder)
    return found


@pytest.mark.parametrize("readme", READMES)
def test_the_tree_is_true(readme: str) -> None:
    whole = {"cli/", "configs/"}  # named as a whole
    files = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if not path.name.startswith("__")}
    assert tree(readme) == {name for name in files if name.split("/")[0] + "/" not in whole} | whole


@pytest.mark.parametrize("readme", READMES)
def test_what_the_readme_links_to_and_walks_through_exists(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
    stops = re.findall(r"^\| \d+ \| `([^`<]+)` \|", text, re.MULTILINE)
    assert len(stops) == 9
    for stop in stops:
        assert (SOURCE / stop).exists(), stop


@pytest.mark.parametrize("readme", READMES)
def test_its_commands_exist(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    commands = set(re.findall(r"^    allears (\w+)", text, re.MULTILINE))
    assert {"prepare", "train", "evaluate", "transcribe"} <= commands
    for command in commands:
        assert (SOURCE / "cli" / f"{command}.py").exists()
    makes = set(re.findall(r"make (\w+)", text))
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert makes <= targets
