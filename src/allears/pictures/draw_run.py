"""Draws how runs went: eight panels over the steps; several runs lie over each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from allears.pictures.canvas import COLOURS, GREY, PALE, PINK, RED, SKY, label, sheet, shortened
from allears.pictures.curves import PARTS, names, smoothed, window

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from allears.pictures.curves import Curves

POINTS = 3000
"""More than that many steps are drawn in stretches: about two for each dot of a panel."""
PART_COLOURS = dict(zip(PARTS, (RED, SKY, PINK, PALE), strict=True))


def draw_run(runs: Sequence[Curves], path: Path) -> None:
    """Write the picture of one or more runs to the PNG ``path``."""
    titles = [shortened(name, 50) for name in names(runs)]
    colours = [COLOURS[n % len(COLOURS)] for n in range(len(runs))]
    styles = [("-", "--", ":", "-.")[n // len(COLOURS) % 4] for n in range(len(runs))]
    with sheet(path, 13, 12) as figure:
        panels = figure.subplots(4, 2)
        (loss, norm), (rate, validation), (split, speed), (padding, memory) = panels
        for curves, colour, style in zip(runs, colours, styles, strict=True):
            _raw_and_smooth(loss, curves, curves.columns["loss"], colour, style)
            _norm(norm, curves, colour, style)
            _raw_and_smooth(rate, curves, curves.columns["learning_rate"], colour, style, raw=False)
            with np.errstate(divide="ignore", invalid="ignore"):
                times = curves.columns["audio_seconds"] / curves.columns["seconds"]
            _raw_and_smooth(speed, curves, times, colour, style)
            _raw_and_smooth(padding, curves, curves.columns["padding"], colour, style)
            _raw_and_smooth(memory, curves, curves.columns["memory_bytes"] / 2**30, colour, style, raw=False)
        _validation(validation, runs, colours, styles)
        _split(split, runs, titles)
        _finish(panels.ravel().tolist(), runs, len(runs) > 1)
        if len(runs) > 1:
            lines = [loss.plot([], [], color=colours[n], linestyle=styles[n])[0] for n in range(len(runs))]
            figure.legend(lines, titles, loc="outside upper left", ncols=min(len(runs), 4), fontsize=9)
        else:
            figure.suptitle(titles[0], x=0.01, ha="left", fontsize=11)


def _finish(panels: list[Axes], runs: Sequence[Curves], several: bool) -> None:
    loss, norm, rate, validation, split, speed, padding, memory = panels
    label(loss, "loss · pale: each step", "", "loss per token")
    label(norm, "gradient norm before clipping · dots: clipped steps", "", "norm")
    label(rate, "learning rate", "", "rate")
    label(validation, "validation", "", "error rate")
    label(split, "where a step's time goes" + (", mean of each run" if several else ""), "", "seconds a step")
    label(speed, "speed", "", "seconds of audio a second")
    label(padding, "padding", "plan step", "share of the audio computed")
    label(memory, "peak memory of the leading process", "plan step", "GiB")
    padding.yaxis.set_major_formatter(PercentFormatter(1.0))
    validation.yaxis.set_major_formatter(PercentFormatter(1.0))
    losses = np.concatenate([curves.columns["loss"] for curves in runs])
    _zoom(loss, losses)
    _zoom(norm, np.concatenate([curves.columns["grad_norm"] for curves in runs]))
    for axes in (rate, speed, padding, memory):
        axes.set_ylim(bottom=0)
    last = max((int(curves.steps[-1]) for curves in runs if len(curves)), default=0)
    for axes in panels:
        if axes is not split or not several:
            axes.set_xlim(-0.01 * max(last, 1), 1.01 * max(last, 1))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if not axes.has_data():
            axes.text(0.5, 0.5, "nothing yet", transform=axes.transAxes, ha="center", color=GREY)


def _zoom(axes: Axes, values: NDArray[np.float64]) -> None:
    """A curve over several powers of ten is drawn on a logarithmic axis; one that is not starts at zero."""
    known = values[np.isfinite(values) & (values > 0)]
    if len(known) and known.max() > 30 * np.percentile(known, 5):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    elif len(known):
        axes.set_ylim(0, float(known.max()) * 1.05)


def _thinned(steps: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Lowest and highest of each stretch, so that no peak is lost."""
    stride = -(-len(steps) // (POINTS // 2))
    if stride <= 2:
        return steps, values
    begins = np.arange(0, len(steps), stride)
    low, high = np.fmin.reduceat(values, begins), np.fmax.reduceat(values, begins)
    return np.repeat(steps[begins], 2), np.stack((low, high), axis=1).ravel()


def _raw_and_smooth(
    axes: Axes, curves: Curves, values: NDArray[np.float64], colour: str, style: str, raw: bool = True
) -> None:
    if not len(curves):
        return
    mark = "o" if len(curves) == 1 else None  # a line of one point cannot be seen
    if raw:
        axes.plot(*_thinned(curves.steps, values), color=colour, alpha=0.25, linewidth=0.7)
        values = smoothed(values, window(len(curves)))
    axes.plot(*_thinned(curves.steps, values), color=colour, linestyle=style, marker=mark)


def _norm(axes: Axes, curves: Curves, colour: str, style: str) -> None:
    norms = curves.columns["grad_norm"]
    _raw_and_smooth(axes, curves, norms, colour, style)
    clipped = curves.columns["clipped"] == 1
    if clipped.any():
        steps, values = _thinned(curves.steps[clipped], norms[clipped])
        size = 7 if len(steps) < 200 else 3
        axes.plot(steps, values, linestyle="", marker=".", markersize=size, color=colour, alpha=0.6)
    clip = curves.settings.get("optimizer")
    bound = clip.get("clip") if isinstance(clip, dict) else None
    if isinstance(bound, int | float) and len(curves):
        axes.axhline(bound, color=GREY, linewidth=1, linestyle=(0, (4, 3)))


def _validation(axes: Axes, runs: Sequence[Curves], colours: list[str], styles: list[str]) -> None:
    """All rates of all sets for one run; the rate that selects, on each run's first set, for several."""
    for number, curves in enumerate(runs):
        found = [(name, rate, *points) for name, rates in curves.validation.items() for rate, points in rates.items()]
        if len(runs) > 1:
            first = next(iter(curves.validation.items()), None)
            chosen = first and (first[0], curves.headline(first[0]))
            found = [one for one in found if one[:2] == chosen]
        for n, (name, rate, steps, values) in enumerate(found):
            colour, style = (colours[number], styles[number]) if len(runs) > 1 else (COLOURS[n % len(COLOURS)], "-")
            axes.plot(steps, values, color=colour, linestyle=style, marker="o", markersize=3.5, label=f"{name}: {rate}")
    if axes.has_data():
        axes.set_ylim(0, min(axes.get_ylim()[1], 1.5) * 1.05)
        axes.legend(loc="best")


def _split(axes: Axes, runs: Sequence[Curves], titles: list[str]) -> None:
    """One run: stacked over the steps. Several: a stacked bar each."""
    if len(runs) == 1:
        (curves,) = runs
        if not len(curves):
            return
        wide = max(window(len(curves)), 1)
        parts = [smoothed(np.nan_to_num(curves.columns[name]), wide) for name in PARTS]
        stride = -(-len(curves) // POINTS)
        steps = curves.steps[::stride]
        if len(curves) == 1:  # a stretch, or there is nothing to see
            steps, parts = np.array([0, 1]), [np.repeat(part, 2) for part in parts]
            stride = 1
        axes.stackplot(
            steps, [part[::stride] for part in parts], labels=PARTS, colors=[PART_COLOURS[name] for name in PARTS]
        )
        # A first step that starts everything up would press all others flat.
        total = np.sum(parts, axis=0)
        axes.set_ylim(0, max(float(np.percentile(total, 99)) * 1.25, 1e-6))
    else:
        bottoms = np.zeros(len(runs))
        for name in PARTS:
            means = np.array([np.nanmean(one.columns[name][1:]) if len(one) > 1 else 0.0 for one in runs])
            axes.bar(range(len(runs)), means, 0.6, bottoms, label=name, color=PART_COLOURS[name])
            bottoms += means
        axes.set_xticks(range(len(runs)), [shortened(title, 60 // len(runs) + 6) for title in titles])
        axes.grid(visible=False, axis="x")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper right", ncols=4, columnspacing=1)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.15)
