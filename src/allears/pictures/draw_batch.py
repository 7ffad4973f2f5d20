"""Draws a step: each micro-batch a block as wide as its utterances are many and as high as the longest is long.

So the area is the audio that is computed, and what is grey of it is padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator

from allears.pictures.canvas import BLUE, GREY, PALE, SKY, label, sheet

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from allears.pictures.batch import PlannedStep

LABELLED = 16
"""Up to so many micro-batches have room for their numbers."""


def draw_batch(step: PlannedStep, path: Path) -> None:
    """Write the picture of ``step`` to the PNG ``path``."""
    with sheet(path, 12, 6.4) as figure:
        blocks, costs = figure.subplots(2, 1, height_ratios=[2.2, 1])
        batches = step.micro_batches
        figures = step.figures()
        figure.suptitle(
            f"step {step.step} · epoch {step.epoch}, {step.inside + 1} of {step.steps_per_epoch} · "
            f"{figures['utterances']:,} utterances · {figures['audio_seconds']:,.1f} s of audio · "
            f"{figures['tokens']:,} tokens · {figures['padding']:.1%} padding",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
        _blocks(blocks, step)
        places = np.arange(len(batches))
        costs.bar(places, [one.cost for one in batches], color=SKY, width=0.7)
        mean = float(np.mean([one.cost for one in batches]))
        costs.axhline(mean, color=GREY, linewidth=1, linestyle="--")
        costs.set_xlim(-0.6, len(batches) - 0.4)
        costs.xaxis.set_major_locator(MaxNLocator(integer=True))
        costs.grid(visible=False, axis="x")
        title = f"cost · the largest is {step.imbalance:.3f} × the mean (dashed)"
        label(costs, title, "micro-batch", "seconds, padded")


def _blocks(axes: Axes, step: PlannedStep) -> None:
    count = sum(len(one.seconds) for one in step.micro_batches)
    gap = max(count, 1) / (3 * len(step.micro_batches))
    few = len(step.micro_batches) <= LABELLED
    highest = max(1e-3, *(one.longest for one in step.micro_batches))
    at, middles = 0.0, []
    edges, heights, tops = [], [], []  # of all utterances; nan in the gaps
    for one in step.micro_batches:
        width = len(one.seconds)
        lengths = np.sort(one.seconds)[::-1]
        if width:
            edges.append(at + np.arange(width + 2.0))
            heights.append(np.concatenate((lengths, lengths[-1:], [np.nan])))
            tops.append(np.full(width + 2, one.longest))
            if width <= 60 and count <= 400:  # finer than this, lines between utterances would be all there is to see
                axes.vlines(at + np.arange(1, width), 0, lengths[1:], color="white", linewidth=0.5)
        middle = at + max(width, gap) / 2
        middles.append(middle)
        if few:
            text = f"{width}\n{one.padding:.1%}" if width else "empty"
            axes.text(middle, one.longest + 0.015 * highest, text, ha="center", va="bottom", fontsize=8)
        at += max(width, gap) + gap
    if count:
        x, audio, top = (np.concatenate(parts) for parts in (edges, heights, tops))
        axes.fill_between(x, 0, audio, step="post", color=BLUE, linewidth=0, label="audio")
        axes.fill_between(x, audio, top, step="post", color=PALE, linewidth=0, label="padding")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    stride = -(-len(middles) // 32)
    axes.set_xticks(middles[::stride], [str(n) for n in range(0, len(middles), stride)])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-gap, at)
    axes.set_ylim(0, highest * (1.2 if few else 1.05))
    axes.grid(visible=False, axis="x")
    above = " · above: utterances, padding" if few else ""
    label(axes, f"utterances, longest first{above}", "micro-batch", "seconds")
