"""A command that runs on every rank: it joins the world, and when it fails says so to whoever started it and leaves."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allears.world import World


@contextlib.contextmanager
def as_rank() -> Iterator[World]:
    """Yield the world of this process.

    After an error nothing collective is run: other ranks may be waiting in a collective that this one will never
    join, so a member of a group leaves at once.
    """
    import os
    import sys
    import traceback

    from allears import stopping
    from allears.cluster.failure import FAILURES, report
    from allears.errors import AllearsError
    from allears.processes import end_with_parent
    from allears.world import start

    end_with_parent()
    stopping.listen()
    rank = int(os.environ.get("RANK", "0"))
    try:
        world = start()
        yield world
    except BaseException as error:
        known = isinstance(error, AllearsError | KeyboardInterrupt)
        report(rank, error, str(error) if known else f"unexpected {type(error).__name__}: {error}")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            if FAILURES not in os.environ:  # a launcher that is not ours: nobody else would say it
                print(f"error: rank {rank}: {error}", file=sys.stderr)
            if not known:
                traceback.print_exc()
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(1)
        raise
    world.close()
