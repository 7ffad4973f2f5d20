"""What ranks say of themselves, read by whoever started them: which one is stuck, and where.

silent    a rank of this machine is not heard, nor does it compute: it is stopped, or something holds it
stalled   no rank of any machine has moved for a long time; the cause are those that do not wait for others
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from allears.cluster.failure import Failure, host
from allears.watching import SHARE_SECONDS, Pulse, pulse_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.distributed import Store  # type: ignore[attr-defined]  # its stub does not list it

STACKS_SECONDS = 0.5
"""How long ranks get to write their stacks: they take milliseconds."""

BUSY = 0.1
"""Share of a processor from which on a rank computes: threads that wait for the interpreter's lock use a hundredth."""

_HELD = {
    psutil.STATUS_STOPPED: "it is stopped by a signal (SIGSTOP or SIGTSTP)",
    psutil.STATUS_DISK_SLEEP: "it waits for a disk or a network file system",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an attempt cannot go on: the ``failure`` of the rank that is the cause, and a ``table`` of all ranks."""

    failure: Failure
    table: str


@dataclass(slots=True)
class _Heard:
    """The last word of a rank, and when, on the clock of `Watch`, it was heard, moved, and used its processor."""

    pulse: Pulse
    at: float
    moved: float
    busy: float
    cpu: float = -1.0
    seen: float = 0.0


class Watch:
    """Watches the ranks of one attempt.

    Args:
        store: in which they say what they do; a connection for nothing else.
        ranks: rank → process id, of those on this machine.
        size: how many ranks there are on all machines.
        stall_seconds: how long nothing may move.
        silent_seconds: how long a rank may neither be heard nor compute.
    """

    def __init__(
        self, store: Store, ranks: dict[int, int], size: int, stall_seconds: float, silent_seconds: float = 8.0
    ) -> None:
        self._store = store
        self._pids = ranks
        self._size = size
        self._stall_seconds = stall_seconds
        self._silent_seconds = silent_seconds
        self._heard: dict[int, _Heard] = {}
        self._looked = time.monotonic()
        self._clock = 0.0

    def look(self) -> Trouble | None:
        """What is wrong, if anything is; costs nothing when called more often than ranks say anything."""
        passed = time.monotonic() - self._looked
        if passed < SHARE_SECONDS / 2:
            return None
        self._looked += passed
        self._clock += min(passed, 2 * SHARE_SECONDS)  # nor does the time count in which this process was stopped
        # Those of other machines are asked only when it may matter.
        if not self._listen(self._pids if self._quiet() < self._stall_seconds / 2 else range(self._size)):
            return None
        failure = self._silent() or self._stalled()
        if failure is None:
            return None
        self._listen(range(self._size))
        return Trouble(failure, self._table())

    def pulses(self) -> list[Pulse]:
        """The last word of each rank that has been heard."""
        return [heard.pulse for _, heard in sorted(self._heard.items())]

    def pulse(self, rank: int) -> Pulse | None:
        """The last word of a rank; none if it has not been heard."""
        return self._heard[rank].pulse if rank in self._heard else None

    def stacks(self) -> None:
        """Let the ranks of this machine write the stacks of all their threads to their stderr."""
        asked = False
        for rank, pid in self._pids.items():
            # Who has been heard knows the signal, and who is stopped cannot hear it.
            if rank in self._heard and _state(pid)[0] not in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, ""}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR2)
                    asked = True
        if asked:
            time.sleep(STACKS_SECONDS)

    def _listen(self, ranks: Iterable[int]) -> bool:
        """Read what is new of ``ranks``; whether the store could be read. It never waits for a rank."""
        try:
            there = [rank for rank in ranks if rank in self._heard or self._store.check([pulse_key(rank)])]
            texts = self._store.multi_get([pulse_key(rank) for rank in there]) if there else []
        except RuntimeError:  # its machine is gone: that is told elsewhere
            return False
        for rank, text in zip(there, texts, strict=True):
            pulse = Pulse.of(text.decode())
            heard = self._heard.setdefault(rank, _Heard(pulse, self._clock, self._clock, self._clock))
            if pulse != heard.pulse:
                heard.at = self._clock
            if pulse.moves != heard.pulse.moves:
                heard.moved = self._clock
            heard.pulse = pulse
        return True

    def _silent(self) -> Failure | None:
        for rank, heard in self._heard.items():
            if rank not in self._pids:
                continue
            state, cpu = _state(self._pids[rank])
            if heard.cpu < 0 or cpu - heard.cpu > BUSY * (self._clock - heard.seen):
                heard.busy = self._clock
            heard.cpu, heard.seen = cpu, self._clock
            since = self._clock - max(heard.at, heard.busy)
            if since > self._silent_seconds and state not in {psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, ""}:
                why = _HELD.get(state, "it does not compute either, so something holds its interpreter")
                return _failure(heard.pulse, f"nothing has been heard of it for {since:.0f} s: {why}.")
        return None

    def _quiet(self) -> float:
        """For how long no rank has moved."""
        return self._clock - max((heard.moved for heard in self._heard.values()), default=0.0)

    def _stalled(self) -> Failure | None:
        quiet = self._quiet()
        if quiet <= self._stall_seconds:
            return None
        mute = [rank for rank in range(self._size) if rank not in self._heard]
        slowest = sorted(self.pulses(), key=lambda pulse: -pulse.seconds)
        stuck = mute + [pulse.rank for pulse in slowest if not pulse.waiting]
        why = "all ranks wait for one another"
        if stuck:
            nor = f", nor {_listed(stuck[1:])}" if stuck[1:] else ""
            why = f"it does not wait for others{nor}" if stuck[0] in self._heard else f"it has not been heard of{nor}"
        message = f"nothing has moved for {quiet:.0f} s, and {why}; if that is right, start with more --stall-seconds."
        rank = stuck[0] if stuck else slowest[0].rank
        if rank not in self._heard:
            return Failure(rank, host() if rank in self._pids else "its machine", time.time(), message)
        return _failure(self._heard[rank].pulse, message)

    def _table(self) -> str:
        rows = [("rank", "host", "phase", "step", "seconds", "utterances")]
        for rank in range(self._size):
            heard = self._heard.get(rank)
            if heard is None:
                rows.append((str(rank), "-", "not heard of", "-", "-", ""))
                continue
            pulse = heard.pulse
            rows.append(
                (
                    str(rank),
                    pulse.host,
                    f"{pulse.phase or 'starting'}{' (waits)' * pulse.waiting}",
                    "-" if pulse.step is None else str(pulse.step),
                    f"{pulse.seconds + self._clock - heard.at:.1f}",
                    " ".join([*pulse.utterances, *([f"and {pulse.more} more"] if pulse.more else [])]),
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)


def _failure(pulse: Pulse, message: str) -> Failure:
    return Failure(pulse.rank, pulse.host, time.time(), message, str(pulse))


def _listed(ranks: list[int]) -> str:
    """``does rank 3`` or ``do ranks 1, 2``, the first ones if there are many."""
    more = f" and {len(ranks) - 10} more" if len(ranks) > 10 else ""
    return f"does rank {ranks[0]}" if len(ranks) == 1 else f"do ranks {', '.join(map(str, ranks[:10]))}{more}"


def _state(pid: int) -> tuple[str, float]:
    """The state of a process, in psutil's words, and the seconds it has computed for; empty if it is gone."""
    try:
        process = psutil.Process(pid)
        spent = process.cpu_times()
        return process.status(), spent.user + spent.system
    except psutil.NoSuchProcess:
        return "", 0.0
