"""What a person sees: notes and progress on stderr, results on stdout, one JSON object last when asked.

In a terminal progress is one line that moves; elsewhere it is a plain line now and then, so that logs stay readable.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import TextIO

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PLAIN_LINE_SECONDS = 10.0


_kept: list[TextIO] = []


def say(text: str) -> None:
    """A note for the person who started the command."""
    print(text, file=sys.stderr, flush=True)
    for file in _kept:
        print(text, file=file, flush=True)


@contextlib.contextmanager
def kept_in(file: TextIO) -> Iterator[None]:
    """While in here, all notes are in ``file`` too."""
    _kept.append(file)
    try:
        yield
    finally:
        _kept.remove(file)


def show(text: str) -> None:
    """A result."""
    print(text, flush=True)


def show_json(value: object) -> None:
    """The last line of a command that was asked for ``--json``."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A result as a table; the first column is left-aligned, the others right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column, name in enumerate(header):
        drawn.add_column(name, justify="left" if column == 0 else "right")
    for row in rows:
        drawn.add_row(*row)
    # A name in brackets is a name: neither markup nor an emoji.
    Console(soft_wrap=not sys.stdout.isatty(), markup=False, emoji=False).print(drawn)


def counted(count: int, one: str) -> str:
    """How many there are of ``one`` (a noun with a regular plural): ``1 error``, ``1,200 errors``."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def duration(seconds: float) -> str:
    """Seconds as a person reads them: ``850 ms``, ``12.3 s``, ``4 min 05 s``, ``3 h 20 min``."""
    if seconds < 0.9995:  # what would be rounded up to the next unit is said in it
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """Progress of one task: done, rate and time left.

    Args:
        task: what is being done, such as ``preparing``.
        total: how many units there are.
        unit: name of a unit in the plural, such as ``utterances``.
        done: how many were done before (a resumed task); they do not count for the rate.
    """

    def __init__(self, task: str, total: float, unit: str, done: float = 0.0) -> None:
        self.task = task
        self.total = total
        self.unit = unit
        self.done = done
        self.note = ""
        self._before = done
        self._began = time.monotonic()
        self._last_line = self._began
        self._rich: RichProgress | None = None
        self._rich_task: TaskID | None = None

    def __enter__(self) -> Self:
        self._began = self._last_line = time.monotonic()
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._rich = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[state]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._rich_task = self._rich.add_task(self.task, total=self.total, completed=int(self.done), state="")
            self._rich.start()
        return self

    def advance(self, amount: float = 1.0, note: str = "") -> None:
        """Count ``amount`` units as done; ``note`` is a short remark that stands behind the numbers."""
        self.done += amount
        self.note = note or self.note
        if self._rich is not None and self._rich_task is not None:
            self._rich.update(self._rich_task, completed=self.done, state=self.line())
        elif time.monotonic() - self._last_line >= PLAIN_LINE_SECONDS:
            self._last_line = time.monotonic()
            say(f"{self.task}: {self.line()}")

    def line(self) -> str:
        """``120/600 utterances · 55/s · 9 s left``."""
        elapsed = max(time.monotonic() - self._began, 1e-9)
        rate = (self.done - self._before) / elapsed
        parts = [f"{self.done:,.0f}/{self.total:,.0f} {self.unit}"]
        if rate > 0:
            parts += [f"{rate:,.1f}/s", f"{duration(round(max(self.total - self.done, 0) / rate))} left"]
        if self.note:
            parts.append(self.note)
        return " · ".join(parts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
        elapsed = time.monotonic() - self._began
        if error is None and elapsed >= 2.0:
            rate = (self.done - self._before) / elapsed
            say(f"{self.task}: {self.done - self._before:,.0f} {self.unit} in {duration(elapsed)} ({rate:,.1f}/s)")
