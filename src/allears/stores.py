"""Where processes meet: torch's key-value store over TCP, served by a process that outlives all ranks."""

from __future__ import annotations

import os
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its stub does not list it

from allears.processes import RENDEZVOUS

_SCHEME = "store://"


def serve(host: str) -> TCPStore:
    """A new store on a free port, in this process."""
    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


def address(store: TCPStore) -> str:
    """What `connect` takes, and what `RENDEZVOUS` says."""
    return f"{_SCHEME}{store.host}:{store.port}"


def connect(at: str, timeout_seconds: float) -> TCPStore:
    """A connection of its own: whoever waits on it keeps nobody else waiting."""
    host, _, port = at.removeprefix(_SCHEME).rpartition(":")
    return TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout_seconds))


def launchers(timeout_seconds: float) -> TCPStore | None:
    """A connection to the store of the launcher that started this process; none where it serves none."""
    at = os.environ.get(RENDEZVOUS, "")
    return connect(at, timeout_seconds) if at.startswith(_SCHEME) else None
