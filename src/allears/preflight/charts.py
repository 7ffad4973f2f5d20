"""Histograms as inline SVG: no script, no picture file; bars tell their numbers when pointed at."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WIDTH, HEIGHT = 320, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 8, 8, 34
BARS = 40
"""Bars of a histogram."""
OUTLYING = 0.1
"""Percentile at each end beyond which values are put into the last bar: one wild value must not squeeze the rest."""


@dataclass(frozen=True)
class Histogram:
    """What is drawn.

    Attributes:
        title: over it.
        unit: of the axis.
        values: [n]; what is not finite is left out.
        lines: thresholds to mark: (value, name).
    """

    title: str
    unit: str
    values: NDArray[np.floating]
    lines: Sequence[tuple[float, str]] = ()


def drawn(chart: Histogram) -> str:
    """A ``figure`` with the SVG; a sentence where there is nothing to draw."""
    values = chart.values[np.isfinite(chart.values)].astype(np.float64)
    caption = f"<figcaption><b>{escape(chart.title)}</b> {escape(chart.unit)}</figcaption>"
    if len(values) == 0:
        return f"<figure>{caption}<p class='none'>nothing to show</p></figure>"
    low, high = _range(values)
    counts, edges = np.histogram(np.clip(values, low, high), bins=BARS, range=(low, high))
    middle = float(np.median(values))
    spread = f"median {_said(middle)}, from {_said(values.min())} to {_said(values.max())}"
    shown = "".join([*_bars(counts, edges), *_axis(low, high), *_marks(chart.lines, low, high)])
    svg = (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(chart.title, quote=True)}: {spread}'>"
        f"{shown}</svg>"
    )
    return f"<figure>{caption}{svg}<p class='spread'>{spread}</p></figure>"


def _said(value: float) -> str:
    """Three digits or all of them, never an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, [OUTLYING, 100 - OUTLYING]).tolist()
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _across(value: float, low: float, high: float) -> float:
    """Where ``value`` stands on the axis, in units of the picture."""
    return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)


def _bars(counts: NDArray[np.int64], edges: NDArray[np.float64]) -> list[str]:
    floor, room = HEIGHT - _BOTTOM, HEIGHT - _BOTTOM - _TOP
    width = (WIDTH - _LEFT - _RIGHT) / len(counts)
    made = []
    for place, count in enumerate(counts.tolist()):
        if count:
            # A lone utterance must be seen beside ten thousand.
            height = max(count / int(counts.max()) * room, 1.5)
            made.append(
                f"<rect x='{_LEFT + place * width:.2f}' y='{floor - height:.2f}' width='{width - 1:.2f}' "
                f"height='{height:.2f}' rx='1'>"
                f"<title>{edges[place]:.4g} to {edges[place + 1]:.4g}: {count:,}</title></rect>"
            )
    return made


def _axis(low: float, high: float) -> list[str]:
    floor = HEIGHT - _BOTTOM
    made = [f"<path class='axis' d='M{_LEFT} {floor}H{WIDTH - _RIGHT}'/>"]
    for value in ticks(low, high):
        at = _across(value, low, high)
        made.append(f"<path class='axis' d='M{at:.1f} {floor}v4'/>")
        made.append(f"<text x='{min(max(at, 16), WIDTH - 16):.1f}' y='{floor + 16}'>{value:g}</text>")
    return made


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between ``low`` and ``high``, at most ``most`` + 1 of them."""
    rough = (high - low) / most
    power = 10.0 ** np.floor(np.log10(rough))
    step = float(power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9)))
    first = int(np.ceil(low / step - 1e-9))
    return [round(n * step, 10) for n in range(first, int(np.floor(high / step + 1e-9)) + 1)]


def _marks(lines: Sequence[tuple[float, str]], low: float, high: float) -> list[str]:
    made = []
    for value, name in lines:
        if low <= value <= high:
            at = _across(value, low, high)
            side, nudge = ("end", -4) if at > WIDTH / 2 else ("start", 4)
            made.append(f"<path class='mark' d='M{at:.1f} {_TOP}V{HEIGHT - _BOTTOM}'/>")
            made.append(f"<text class='mark {side}' x='{at + nudge:.1f}' y='{_TOP + 8}'>{escape(name)}</text>")
    return made


def waveform(samples: NDArray[np.int16], width: int = 240, height: int = 36) -> str:
    """A waveform [n] as a small SVG: its extremes in each of ``width`` / 2 columns."""
    columns = width // 2
    edges = np.linspace(0, len(samples), columns + 1).astype(np.int64)[:-1]
    edges = np.unique(np.minimum(edges, len(samples) - 1))
    scale = height / 2 / 32768
    tops = height / 2 - np.maximum.reduceat(samples, edges) * scale
    bottoms = height / 2 - np.minimum.reduceat(samples, edges) * scale
    path = "".join(
        f"M{2 * n + 1} {top:.1f}V{bottom + 0.5:.1f}" for n, (top, bottom) in enumerate(zip(tops, bottoms, strict=True))
    )
    return f"<svg class='wave' viewBox='0 0 {width} {height}' aria-hidden='true'><path d='{path}'/></svg>"
