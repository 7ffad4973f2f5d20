"""``allears bench``: what things cost on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allears.bench.train import Measured


def train(
    config: str = typer.Argument(help="A YAML file, or the name of a shipped config."),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Settings to change, such as dataset=PATH or plan.step_seconds=16."
    ),
    processes: str = typer.Option("1,2,4", help="Numbers of processes, one after another."),
    reduction: str = typer.Option("exact,fast", help="Reductions, in turns within the same processes."),
    steps: int = typer.Option(4, help="Different steps in a block."),
    rounds: int = typer.Option(10, help="Blocks of each reduction; one more goes before, to warm up."),
    out: Path = typer.Option(Path("runs/bench"), help="Folder of what is measured."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Measure what a training step costs, where its time goes, and what exact reduction costs beside fast.

    The same processes take the same steps with one reduction after the other, many times in turn, so that other
    programs disturb both alike. Batches are loaded ahead. The cores are shared among the processes (ALLEARS_THREADS).

    Example: allears bench train small dataset=data/libri plan.step_seconds=16 --processes 1,2
    """
    from allears.cluster.launch import launched
    from allears.errors import SettingsError
    from allears.loading.plan import subtrees
    from allears.run.settings import settings_of

    try:
        worlds = [int(number) for number in processes.split(",")]
    except ValueError:
        raise SettingsError(
            f"--processes must be numbers with commas between them, such as 1,2,4, not {processes!r}."
        ) from None
    for option, number in (("--processes", min(worlds)), ("--steps", steps), ("--rounds", rounds)):
        if number < 1:
            raise SettingsError(f"{option} must be at least 1, not {number}.")
    given = [f"train.{item}" if item.startswith("dataset=") else item for item in overrides or []]
    settings, _ = settings_of(config, given)
    from allears.bench.train import known_reductions, measure, measure_worlds

    reductions = known_reductions(reduction.split(","))
    if launched():
        from allears.cli.ranks import as_rank

        with as_rank() as world:
            measure(settings, world, reductions, steps, rounds, out)
        return
    for number in worlds:
        subtrees(settings.plan.micro_batches, number)  # whether there is work for each is said before they start
    options = ["--reduction", reduction, "--steps", str(steps), "--rounds", str(rounds), "--out", str(out)]
    _show_steps(measure_worlds(["bench", "train", config, *given, *options], worlds, out), as_json)


def _show_steps(found: Sequence[Measured], as_json: bool) -> None:
    from dataclasses import asdict

    from allears.bench.train import BASELINE
    from allears.reporting import counted, show, show_json, table

    for measured in found:
        at, all_costs = measured.conditions, measured.costs
        rows = [
            ("whole step", [_ms(cost.step_seconds) for cost in all_costs]),
            ("  its quartiles", [" to ".join(map(_ms, cost.quartiles)) for cost in all_costs]),
            ("data wait (loaded ahead)", [_ms(cost.seconds["data"]) for cost in all_costs]),
            ("compute", [_ms(cost.seconds["compute"]) for cost in all_costs]),
            ("exposed communication", [_ms(cost.seconds["communication"]) for cost in all_costs]),
            ("other", [_ms(cost.seconds["other"]) for cost in all_costs]),
            ("CPU time, all processes", [_ms(cost.cpu_seconds) for cost in all_costs]),
            (f"whole step over {BASELINE}", ["-" if cost.ratio is None else f"{cost.ratio:.3f}" for cost in all_costs]),
            ("  95 % of that", [" to ".join(f"{end:.3f}" for end in cost.interval or ()) for cost in all_costs]),
        ]
        title = f"{at.processes} process{'es' * (at.processes > 1)}, {counted(at.threads, 'thread')} each"
        head = ["ms, medians", *(cost.reduction for cost in all_costs)]
        size = f"{at.parameters:,} parameters, {at.audio_seconds:g} s of audio a step"
        table(f"{title}: {size}", head, [[name, *cells] for name, cells in rows])
        if at.processes * at.threads > at.cores:
            show(f"  {at.processes} processes shared {at.cores} cores, and waited for each other.")
        show(f"  Other programs used {at.others:.2f} of the machine's cores meanwhile.\n")
    if as_json:
        show_json({"rows": [{**asdict(one.conditions), **asdict(cost)} for one in found for cost in one.costs]})


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}"
