"""The page: whole by itself, well-formed, bounded, and safe against what stands in transcripts."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from allears.preflight import page
from allears.preflight.charts import Histogram, drawn, ticks, waveform
from allears.preflight.findings import find
from allears.preflight.report import Report
from allears.preflight.settings import PreflightSettings
from allears.preflight.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from allears.preflight.survey import Survey

SETTINGS = PreflightSettings(noisy=200)  # then all is noisy
VOID = {"meta", "rect", "path"}


class Balanced(HTMLParser):
    """Reads a page and checks that what is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert tag in VOID, attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def read(text: str) -> Balanced:
    found = Balanced()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def written(report: Report, folder: Path) -> str:
    page.write(report, folder)
    return (folder / page.NAME).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(make_dataset: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Report:
    from allears.manifest.index import Index

    dataset = make_dataset(tmp_path_factory.mktemp("page"), 12, words=(3, 6))
    found = survey(Index.open(dataset), SETTINGS, 1)
    return Report(found, find(found, SETTINGS), SETTINGS, "tiny")


def test_the_worst_can_be_heard_and_nothing_else_is_needed(report: Report, tmp_path: Path) -> None:
    found = read(written(report, tmp_path))
    assert found.seen.count("svg") == len(page.charts(report)) + found.seen.count("audio")
    assert found.seen.count("audio") == page.PLAYED * len(report.findings) > 0
    sounds = [link for link in found.links if link.startswith("data:audio/flac;base64,")]
    assert all(link.startswith("#") for link in found.links if link not in sounds)
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(sounds[0].partition(",")[2])), dtype="int16")
    assert rate == 16_000
    (one,) = report.findings
    assert len(samples) == report.survey.index.samples[one.rows[0]]


def test_it_stays_small(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PLAYED_BYTES", 10)
    monkeypatch.setattr(page, "PLAYED_SECONDS", 1)
    text = written(report, tmp_path)
    assert "<audio" not in text
    assert "the page is full" in text
    assert len(text) < 60_000


def test_what_stands_in_a_transcript_is_only_text(surveyed: Callable[..., Survey], tmp_path: Path) -> None:
    texts = ["<script>alert(1)</script> &amp; \"'>", "plain words"]
    found = surveyed(texts, speaker=["</main><b>", "x"])
    report = Report(found, find(found, SETTINGS), SETTINGS, "<b>")
    text = written(report, tmp_path)
    seen = read(text).seen
    assert "script" not in seen
    assert "&lt;script&gt;" in text
    assert "cannot be played" in text  # there is no shard


def test_nothing_found(surveyed: Callable[..., Survey], tmp_path: Path) -> None:
    report = Report(surveyed(["one"]), [], SETTINGS, "")
    text = written(report, tmp_path)
    read(text)
    assert "Nothing was found." in text


@pytest.mark.parametrize(
    "values", [[], [np.nan], [1.0], [0.0, 0.0], [-5.0, 1e6], [8000.0] * 3, list(range(1000)), [np.inf, 2.0, 3.0]]
)
def test_any_histogram_can_be_drawn(values: list[float]) -> None:
    text = drawn(Histogram("a <b>", "s", np.array(values, np.float32), [(1.0, "here"), (1e9, "far")]))
    read(text)
    finite = sum(map(np.isfinite, values))
    bars = [int(count.replace(",", "")) for count in re.findall(r": ([\d,]+)</title>", text)]
    assert sum(bars) == finite
    assert "nan" not in text.lower().replace("nothing", "")
    assert "far" not in text


def test_ticks_are_round() -> None:
    assert ticks(0, 6) == [0, 1, 2, 3, 4, 5, 6]
    assert ticks(3900, 8100) == [4000, 5000, 6000, 7000, 8000]
    assert ticks(-0.3, 0.4) == [-0.2, 0.0, 0.2, 0.4]
    assert ticks(7999.5, 8000.5) == [7999.6, 7999.8, 8000.0, 8000.2, 8000.4]


@pytest.mark.parametrize("samples", [1, 5, 240, 100_000])
def test_any_waveform_can_be_drawn(samples: int) -> None:
    read(waveform(np.arange(samples, dtype=np.int64).astype(np.int16)))
