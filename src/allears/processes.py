"""What a started process is told in its environment, and how it ends with whoever started it."""

from __future__ import annotations

import ctypes
import os
import signal

LIFELINE = "ALLEARS_PARENT"
"""Process id of the starter with which a started process wants to end."""

RENDEZVOUS = "ALLEARS_RENDEZVOUS"
"""Where the processes of one machine meet when `cluster.local` started them: a ``file://`` address, no port."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent() -> None:
    """Be killed by the kernel when the process named in `LIFELINE` is gone; nothing where none is named."""
    parent = os.environ.pop(LIFELINE, None)  # not for this process's own children
    if parent is not None:
        tie_to(int(parent))


def tie_to(parent: int) -> None:
    """Be killed by the kernel when the parent ``parent`` ends, also when it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
