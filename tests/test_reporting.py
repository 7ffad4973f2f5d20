from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from allears import reporting
from allears.reporting import Progress, counted, duration, say, show, show_json, table

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(reporting, "time", made)
    return iter([made])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0004, "0 ms"),
        (0.85, "850 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (1, "1.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (60, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (12_000, "3 h 20 min"),
        (200_000, "55 h 33 min"),
    ],
)
def test_a_duration_is_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_notes_and_results_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    say("note: one")
    show("result")
    table("Rates", ["set", "wer"], [["dev", "1.5 %"], ["test-other", "10.5 %"]])
    show_json({"wer": 0.015, "name": "größe"})
    out, err = capsys.readouterr()
    assert err == "note: one\n"
    lines = out.rstrip("\n").split("\n")
    assert lines[0] == "result"
    assert json.loads(lines[-1]) == {"wer": 0.015, "name": "größe"}
    assert "größe" in lines[-1]
    rows = [line.rstrip() for line in lines if "%" in line]
    assert rows[0].lstrip().startswith("dev ")
    assert len(rows[0]) == len(rows[1])
    assert "\x1b" not in out


def test_without_a_terminal_progress_is_a_plain_line_now_and_then(
    clock: Iterator[Clock], capsys: pytest.CaptureFixture[str]
) -> None:
    time = next(clock)
    with Progress("preparing", 1000, "utterances") as progress:
        for _ in range(250):
            time.now += 0.1
            progress.advance(2)
        progress.advance(0, note="3 rejected")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "preparing: 200/1,000 utterances · 20.0/s · 40.0 s left",
        "preparing: 400/1,000 utterances · 20.0/s · 30.0 s left",
        "preparing: 500 utterances in 25.0 s (20.0/s)",
    ]


def test_a_short_task_says_nothing(clock: Iterator[Clock], capsys: pytest.CaptureFixture[str]) -> None:
    time = next(clock)
    with Progress("reading", 10, "files") as progress:
        time.now += 1.9
        progress.advance(10)
    assert capsys.readouterr().err == ""


def test_what_was_done_before_does_not_count_for_the_rate(clock: Iterator[Clock]) -> None:
    time = next(clock)
    with Progress("training", 100, "steps", done=60) as progress:
        assert progress.line() == "60/100 steps"
        time.now += 5
        progress.advance(10, note="loss 1.2")
        assert progress.line() == "70/100 steps · 2.0/s · 15.0 s left · loss 1.2"
        progress.advance(40)
        assert "0 ms left · loss 1.2" in progress.line()


def test_a_task_that_fails_does_not_report_success(clock: Iterator[Clock], capsys: pytest.CaptureFixture[str]) -> None:
    time = next(clock)
    with pytest.raises(ValueError, match="broken"), Progress("reading", 10, "files"):  # noqa: PT012
        time.now += 30
        raise ValueError("broken")
    assert capsys.readouterr().err == ""


def test_in_a_terminal_the_line_moves_and_goes_away(
    monkeypatch: pytest.MonkeyPatch, clock: Iterator[Clock], capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    time = next(clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress("reading", 10, "files") as progress:
        time.now += 20
        progress.advance(5)
    lines = capsys.readouterr().err
    assert "reading: 5 files in 20.0 s (0.2/s)" in lines
    assert "reading: 5/10" not in lines


def test_one_is_no_plural() -> None:
    assert [counted(n, "error") for n in (0, 1, 2, 1200)] == ["0 errors", "1 error", "2 errors", "1,200 errors"]
