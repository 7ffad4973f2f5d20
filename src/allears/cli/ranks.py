"""A command that runs on every rank: it joins the world, and when it fails says so to whoever started it and leaves."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allears.world import World


@contextlib.contextmanager
def as_rank(stopped: int | None = None) -> Iterator[World]:
    """Yield the world of this process.

    After an error nothing collective is run: other ranks may be waiting in a collective that this one will never
    join, so a member of a group leaves at once.

    Args:
        stopped: exit code when a scheduler's signal ends this process; by default 128 and the signal's number.
    """
    import os
    import sys
    import traceback
    from pathlib import Path

    from allears import stopping, watching
    from allears.cluster.failure import FAILURES, failed, report, stacks_file
    from allears.errors import AllearsError
    from allears.processes import STALL, end_with_parent
    from allears.stores import launchers
    from allears.world import start

    launched = FAILURES in os.environ  # by our own launcher, which says what has failed
    end_with_parent()
    stopping.listen(stopped, launched)
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        stacks = stacks_file(Path(os.environ[FAILURES]), rank) if launched else None
        watching.start(rank, launchers(60.0), float(os.environ.get(STALL, "300")), stacks)
        world = start()
        yield world
    except BaseException as error:
        report(failed(rank, error))
        if launched or size > 1:
            if not launched:
                print(f"error: rank {rank}: {error}", file=sys.stderr)
            if not isinstance(error, AllearsError | KeyboardInterrupt) and not (launched and rank == 0):
                traceback.print_exc()
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(1)
        raise
    world.close()
