"""A manifest beside its index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from allears.manifest import manifest
from allears.preflight.manifests import compare
from allears.preflight.settings import PreflightSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from allears.preflight.survey import Survey

    Surveyed = Callable[..., Survey]

SETTINGS = PreflightSettings()


def found_in(survey: Survey) -> dict[str, tuple[list[str], str]]:
    return {
        one.kind.name: ([one.words(place) for place in range(len(one.rows))], one.whole)
        for one in compare(survey, SETTINGS)
    }


def change(folder: Path, row: int, **fields: Any) -> None:
    path = folder / manifest.NAME
    lines = path.read_text().splitlines(keepends=True)
    lines[row] = json.dumps(json.loads(lines[row]) | fields) + "\n"
    path.write_text("".join(lines))


def test_the_same_is_no_finding(surveyed: Surveyed) -> None:
    assert found_in(surveyed(["one", "two"])) == {}


def test_durations(surveyed: Surveyed, tmp_path: Path) -> None:
    survey = surveyed(["one", "two", "three"], samples=[32_000, 31_999, 32_000])
    change(tmp_path, 2, duration=2.5)
    change(tmp_path, 0, duration=2.01)  # corpora round
    words, whole = found_in(survey)["wrong duration"]
    assert words == ["-1 samples beside the index", "2.5 s in the manifest, 2.000 s in truth"]
    assert whole == ""


def test_texts_and_ids(surveyed: Surveyed, tmp_path: Path) -> None:
    survey = surveyed(["one", "two", "three"])
    change(tmp_path, 1, text="too")
    change(tmp_path, 2, id="other")
    assert found_in(survey) == {
        "manifest differs": (["'too' in the manifest, 'two' in the index", "line 3 is of other"], "")
    }


@pytest.mark.parametrize(
    ("text", "whole"), [("", "fewer lines"), ("twice", "more lines"), ("{", "not JSON"), (None, "cannot be read")]
)
def test_a_manifest_that_is_another_one(surveyed: Surveyed, tmp_path: Path, text: str | None, whole: str) -> None:
    survey = surveyed(["one", "two"])
    path = tmp_path / manifest.NAME
    if text is None:
        path.unlink()
    else:
        path.write_text(path.read_text() * 2 if text == "twice" else text)
    (found,) = found_in(survey).values()
    assert whole in found[1]
