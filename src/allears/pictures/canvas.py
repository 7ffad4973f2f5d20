"""A sheet to draw on, written as a PNG that is complete or absent: plain style, safe colours, fonts for any script.

Matplotlib's objects are used without ``pyplot``, so that nothing global stays behind, and need no display.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from allears import seeding
from allears.files import written
from allears.reporting import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
)  # fmt: skip
"""Told apart with any colour vision (Okabe, Ito, Color Universal Design, 2008)."""
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW)
GREY, PALE = "#8c8c8c", "#d9d9d9"

DOTS_PER_INCH = 120
_FIRST_FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic
_MORE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "Noto Serif CJK SC", "PingFang SC",
    "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback",
    "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji", "Arial Unicode MS",
    "Unifont",
)  # fmt: skip
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-3, 6),
    "grid.color": "#ececec",
    "xtick.color": "#404040",
    "ytick.color": "#404040",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,  # a dollar in a transcript is a dollar
    "savefig.dpi": DOTS_PER_INCH,
}
_MISSING = re.compile(r"Glyph (\d+) .*missing from")


@contextlib.contextmanager
def sheet(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of ``width`` × ``height`` inches; it becomes the PNG ``path`` when the block ends well."""
    have = {font.name for font in fontManager.ttflist}
    fonts = [_FIRST_FONT, *(name for name in _MORE_FONTS if name in have)]
    with rc_context({**_STYLE, "font.family": fonts}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        with warnings.catch_warnings(record=True) as caught, written(path) as file:
            warnings.simplefilter("always")
            figure.savefig(file, format="png")
    _tell(caught)


def _tell(caught: list[warnings.WarningMessage]) -> None:
    """Letters without a glyph are one note; any other warning goes on its way."""
    letters = ""
    for warning in caught:
        missing = _MISSING.match(str(warning.message))
        if missing is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif chr(int(missing.group(1))) not in letters:
            letters += chr(int(missing.group(1)))
    if letters:
        some = letters[:12] + ("…" if len(letters) > 12 else "")
        say(f"note: no font here has {some}, drawn as boxes; install one that has, such as Noto Sans CJK.")


def file_name(text: str) -> str:
    """``text`` (an utterance's id, a run's name) as part of a file's name; different texts stay different."""
    plain = re.sub(r"[^\w.+-]+", "_", text).encode()[:120].decode(errors="ignore")  # a name has at most 255 bytes
    return plain if plain == text and plain.strip(".") else f"{plain}-{seeding.key(text):016x}"


def shortened(text: str, most: int) -> str:
    """``text`` on one line of at most ``most`` letters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def label(axes: Axes, title: str, across: str, up: str) -> None:
    """Title and axes' names, with units."""
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
