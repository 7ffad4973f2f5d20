"""``allears parity``."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def parity(
    config: str = typer.Argument(help="A YAML file, or the name of a shipped config."),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Settings to change, such as dataset=PATH or training.reduction=fast."
    ),
    world: str = typer.Option("1,2,4", help="Numbers of processes to compare; the first is what others must equal."),
    steps: int = typer.Option(20, help="Steps of each."),
    out: Path = typer.Option(Path("runs/parity"), help="Folder of the runs."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object as the last line."),
) -> None:
    """Prove that the number of processes does not change the result: all weights, bit by bit, after each step.

    Each process computes with one thread, since the same bits need the same number (ALLEARS_THREADS changes it).
    Exit code 1 when something differs.

    Example: allears parity tiny dataset=data/libri --world 1,2,4 --steps 20
    """
    from dataclasses import asdict

    from allears.errors import SettingsError
    from allears.parity import first_difference, run_worlds
    from allears.reporting import show, show_json, table

    try:
        worlds = [int(number) for number in world.split(",")]
    except ValueError:
        raise SettingsError(
            f"--world must be numbers with commas between them, such as 1,2,4, not {world!r}."
        ) from None
    given = [f"train.{item}" if item.startswith("dataset=") else item for item in overrides or []]
    found = run_worlds(config, given, worlds, steps, out)
    first, *others = found
    rows = []
    for n, report in enumerate(found[first].reports):
        same = ["=" if found[one].digests[n] == found[first].digests[n] else "differs" for one in others]
        rows.append([str(n), f"{report['loss']:.6f}", f"{report['grad_norm']:.6f}", *same])
    table("weights and optimiser after each step", ["step", "loss", "gradient norm", *map(str, others)], rows)
    difference = first_difference(found)
    if difference is None:
        show(f"the same bits on {', '.join(map(str, worlds))} processes after each of {steps} steps")
    else:
        names = ", ".join(difference.tensors[:4]) + (" and more" if len(difference.tensors) > 4 else "")
        show(f"{difference.world} processes differ from {first} after step {difference.step}, in {names}")
    if as_json:
        told = None if difference is None else asdict(difference)
        show_json({"equal": difference is None, "first_difference": told, "worlds": worlds, "steps": steps})
    sys.exit(0 if difference is None else 1)
