"""Draws an utterance: waveform, features, features as augmented, one above the other on one axis of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps

from allears.pictures.canvas import BLUE, GREY, label, sheet, shortened
from allears.pictures.utterance import FULL_SCALE
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from numpy.typing import NDArray

    from allears.pictures.utterance import Heard

COLUMNS = 1400
"""Extremes are drawn of so many stretches of a waveform: about one for each dot across."""


def draw_utterance(heard: Heard, path: Path) -> None:
    """Write the picture of ``heard`` to the PNG ``path``."""
    two = heard.waveform_changes
    with sheet(path, 12, 9 if two else 7.4) as figure:
        rows = figure.subplots(4 if two else 3, 1, height_ratios=[1, *([1] if two else []), 1.4, 1.4], squeeze=False)
        waves, pictures = rows[:-2, 0], rows[-2:, 0]
        figure.suptitle(_title(heard), x=0.01, ha="left", fontsize=11)
        _waveform(waves[0], heard.before, "waveform" + (" before augmentation" if two else ""))
        if two:
            _waveform(waves[1], heard.after, f"waveform after augmentation, epoch {heard.epoch}")
        bound = 1.1 * max(1e-3, *(np.abs(one / FULL_SCALE).max(initial=0) for one in (heard.before, heard.after)))
        for axes in waves:
            axes.set_ylim(-bound, bound)
        low, high = _range(heard.features)
        hidden = f"{heard.hidden.mean():.0%} hidden (grey)" if heard.hidden.any() else "nothing hidden"
        image = _features(pictures[0], heard.features, heard.seconds, low, high)
        label(pictures[0], f"features before augmentation · {heard.kind}", "", "band")
        shown = np.ma.masked_array(heard.augmented, heard.hidden)
        _features(pictures[1], shown, len(heard.after) / SAMPLE_RATE, low, high)
        label(pictures[1], f"features after augmentation, epoch {heard.epoch} · {hidden}", "seconds", "band")
        figure.colorbar(image, ax=list(pictures), pad=0.01, aspect=40).outline.set_visible(False)
        longest = max(len(heard.before), len(heard.after), 1) / SAMPLE_RATE
        for axes in rows[:, 0]:
            axes.set_xlim(0, longest)


def _title(heard: Heard) -> str:
    facts = [shortened(heard.id, 60), f"speaker {shortened(heard.speaker, 30)}" if heard.speaker else ""]
    facts += [f"{heard.seconds:.2f} s", f"{len(heard.tokens)} tokens" if heard.tokens is not None else ""]
    return " · ".join(fact for fact in facts if fact) + "\n" + (shortened(heard.text, 110) or "(no text)")


def _waveform(axes: Axes, waveform: NDArray[np.int16], title: str) -> None:
    """The lowest and highest sample of each stretch, so that no peak is lost however long the audio is."""
    samples = waveform.astype(np.float64) / FULL_SCALE
    stride = max(1, len(samples) // COLUMNS)
    begins = np.arange(0, len(samples), stride)
    if stride == 1:
        axes.plot(begins / SAMPLE_RATE, samples, color=BLUE, linewidth=0.8)
    elif len(samples):
        # A stretch borrows the next one's first sample, so that the filled shape has no gaps.
        ends = samples[np.minimum(begins + stride, len(samples) - 1)]
        lowest = np.minimum(np.minimum.reduceat(samples, begins), ends)
        highest = np.maximum(np.maximum.reduceat(samples, begins), ends)
        axes.fill_between(begins / SAMPLE_RATE, lowest, highest, color=BLUE, linewidth=0.3)
    label(axes, title, "", "amplitude (full scale 1)")


def _features(axes: Axes, features: NDArray[Any], seconds: float, low: float, high: float) -> AxesImage:
    frames, bins = features.shape
    axes.grid(visible=False)
    if not frames:
        axes.text(0.5, 0.5, "shorter than one window: no frames", transform=axes.transAxes, ha="center", color=GREY)
        features = np.full((1, bins), np.nan)
    colours = colormaps["viridis"].with_extremes(bad="#bfbfbf")
    return axes.imshow(
        features.T, origin="lower", aspect="auto", extent=(0, max(seconds, 1e-3), 0, bins), cmap=colours,
        vmin=low, vmax=high, interpolation="nearest",
    )  # fmt: skip


def _range(features: NDArray[np.float32]) -> tuple[float, float]:
    """Values between which colours are spread; the extreme hundredths are left out."""
    if not features.size:
        return 0.0, 1.0
    low, high = (float(value) for value in np.percentile(features, (1, 99)))
    return (low, high) if high - low > 1e-3 else (low - 1.0, high + 1.0)
