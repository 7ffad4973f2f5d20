"""Before a training starts, all its processes compare what they were started with: what differs would end in a hang."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import torch

from allears import __version__
from allears.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allears.world import World


def versions() -> dict[str, str]:
    """What computes here."""
    return {"allears": __version__, "torch": torch.__version__, "python": platform.python_version()}


def agree(world: World, facts: Mapping[str, Any]) -> None:
    """Compare ``facts`` (name → anything with a faithful ``repr``) with those of all other processes.

    Raises:
        SettingsError: on every process alike, one sentence that names the first fact that differs, and both values.
    """
    told = world.gather({name: repr(value) for name, value in facts.items()})
    first = told[0]
    for rank, theirs in enumerate(told):
        for name in {**first, **theirs}:
            here, there = first.get(name, "nothing"), theirs.get(name, "nothing")
            if here != there:
                raise SettingsError(
                    f"the processes of this training disagree: {name} is {here} on rank 0 and {there} on rank {rank}; "
                    "start all with the same command, data and environment."
                )
