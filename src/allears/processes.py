"""What a started process is told in its environment, and how it ends with whoever started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

DEBUG = "ALLEARS_DEBUG"
"""Set where ``--debug`` was given: errors then come with their tracebacks, those of other processes too."""

LIFELINE = "ALLEARS_PARENT"
"""Process id of the starter with which a started process wants to end."""

THREADS = "ALLEARS_THREADS"
"""How many threads a process computes with on a CPU, its share of the cores if unset; other numbers give other bits."""

RENDEZVOUS = "ALLEARS_RENDEZVOUS"
"""Where processes meet when `cluster.launch` started them: ``store://HOST:PORT``, a store that the launcher serves."""

STALL = "ALLEARS_STALL"
"""Seconds without any movement after which a rank is taken for stuck."""

PART = "ALLEARS_PART"
"""Which training this is, from 0, of a command that starts several alike: what they share is said by the first."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # <malloc.h>


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of giving it back to the kernel at once; nothing on another C library.

    A training on a CPU frees and takes megabytes thousands of times a second, and each time the kernel would clear the
    pages anew: measured, a step of a small model takes a quarter less time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((_M_MMAP_THRESHOLD, 1 << 25), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, 1 << 26)):
            mallopt(parameter, value)


def end_with_parent() -> None:
    """Be killed by the kernel when the process named in `LIFELINE` is gone; nothing where none is named."""
    parent = os.environ.pop(LIFELINE, None)  # not for this process's own children
    if parent is not None:
        tie_to(int(parent))


def tie_to(parent: int) -> None:
    """Be killed by the kernel when the parent ``parent`` ends, also when it has ended already; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
