"""Several ranks on this machine, or on several that meet: the same command once a rank, started again when it dies."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from allears.errors import SettingsError, TrainingError
from allears.loading.plan import subtrees
from allears.reporting import say
from allears.stopping import STOPPED, heard_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed.elastic.rendezvous import RendezvousHandler

LOOK_SECONDS = 0.05
"""How often ranks are looked at."""

_TIMES = {"last_call_timeout": 2, "keep_alive_interval": 1, "keep_alive_max_attempt": 5, "join_timeout": 600}
"""Of torch's rendezvous, in seconds: wait for more machines, sign of life, how many may be missed, wait for enough."""


@dataclass(frozen=True)
class Launch:
    """How ranks are started.

    Attributes:
        processes: ranks on this machine.
        restarts: how often to start again without progress in between.
        machines: fewest and most that take part.
        meet: ``HOST:PORT`` at which machines meet; the first one that is HOST serves it.
        stall_seconds: how long nothing may move before the attempt is ended.
    """

    processes: int = 1
    restarts: int = 0
    machines: tuple[int, int] = (1, 1)
    meet: str | None = None
    stall_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not 0 < self.stall_seconds < math.inf:
            raise SettingsError(f"--stall-seconds must be above 0, such as 300, not {self.stall_seconds:g}.")
        if self.processes < 1:
            raise SettingsError(f"--processes must be at least 1, not {self.processes}.")
        if self.restarts < 0:
            raise SettingsError(f"--restarts must be 0 or more, not {self.restarts}.")
        if not 1 <= self.machines[0] <= self.machines[1]:
            raise SettingsError(
                f"--machines must be N or FEWEST:MOST, such as 2 or 1:4, not {self.machines[0]}:{self.machines[1]}."
            )
        if self.machines == (1, 1) and self.meet is not None:
            raise SettingsError("--meet needs --machines N or FEWEST:MOST: how many take part.")
        if self.machines != (1, 1) and self.meet is None:
            raise SettingsError("--machines needs --meet HOST:PORT, the same on all, HOST being one of them.")


def bounds(machines: str) -> tuple[int, int]:
    """``N`` or ``FEWEST:MOST`` as two numbers.

    Raises:
        SettingsError: it is neither.
    """
    fewest, _, most = machines.partition(":")
    if not fewest.isdigit() or not (most or fewest).isdigit():
        raise SettingsError(f"--machines must be N or FEWEST:MOST, such as 2 or 1:4, not {machines!r}.")
    return int(fewest), int(most or fewest)


def shared_by(how: Launch, micro_batches: int) -> Launch:
    """``how`` with no more machines than can share the micro-batches of a step: one that comes then waits.

    Raises:
        SettingsError: not even the fewest can.
    """
    subtrees(micro_batches, how.processes * how.machines[0])
    return replace(how, machines=(how.machines[0], min(how.machines[1], micro_batches // how.processes)))


def processes_here() -> int:
    """How many ranks this machine runs unless told otherwise: one a GPU, or one."""
    import torch

    return max(torch.cuda.device_count(), 1)


def warm() -> None:
    """Let what ranks are forked from begin to import, while this process does something else."""
    from allears.cluster import forks

    forks.warm()


def launched() -> bool:
    """Whether this process is one rank of a group that somebody started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launch(arguments: Sequence[str], how: Launch) -> int:
    """Run ``python -m allears ARGUMENTS`` on all ranks and wait.

    The first rank writes to this terminal; what the others write is shown only when they fail. When one fails, all end
    at once, its own error is what is shown, and all start again as often as ``how`` allows. SIGTERM, SIGUSR1 and Ctrl-C
    ask all ranks to stop; a second Ctrl-C ends them.

    Returns:
        The exit code: 0 when all ranks succeeded; `STOPPED` when they were stopped by a scheduler's signal and the same
        command goes on; 128 and a signal's number when that ended them; 1 when they failed.

    Raises:
        SettingsError: machines cannot meet.
    """
    agents: list[Agent] = []
    code = partial(_code, arguments[0])
    # Signals are heard before anything else is done: importing torch takes seconds.
    with heard_by(lambda number: agents[0].ask(number) if agents else _leave(code(number))):
        warm()  # it imports at the same time as this process does
        os.environ.setdefault(
            "TORCH_CPP_LOG_LEVEL", "FATAL"
        )  # a store that is lost is told in a sentence, not in frames
        from torch.distributed.elastic.agent.server.api import WorkerSpec, WorkerState
        from torch.distributed.elastic.rendezvous import RendezvousError

        from allears.cluster.agent import Agent

        logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)
        address = "localhost" if how.meet is None else _own_address(how.meet)
        handler = _rendezvous(how, address)
        spec = WorkerSpec(
            "rank",
            how.processes,
            handler,
            entrypoint="allears",
            max_restarts=how.restarts,
            monitor_interval=LOOK_SECONDS,
        )
        agent = Agent(spec, arguments, address, how.stall_seconds, code)
        agents.append(agent)
        try:
            result = agent.run()
        except RendezvousError as error:
            what = "the machine at which others meet is gone" if agent.attempts else "machines could not meet"
            raise TrainingError(f"{what} ({how.meet}): {error}") from None
        finally:
            agent.kill()
            with contextlib.suppress(Exception):
                handler.shutdown()
    if agent.stopped or (agent.asked and not (agent.failure and agent.failure.final)):
        return code(agent.asked or signal.SIGTERM)
    return 0 if result is not None and result.state == WorkerState.SUCCEEDED else 1


def _leave(code: int) -> None:
    from allears.cluster.forks import swept

    swept()
    os._exit(code)


def _code(command: str, number: int) -> int:
    """The exit code after signal ``number``: a training that a scheduler stops goes on by the same command."""
    return STOPPED if command == "train" and number != signal.SIGINT else 128 + number


def _rendezvous(how: Launch, address: str) -> RendezvousHandler:
    """Where agents meet: torch's own rendezvous, on a store of this process, or of the machine `Launch.meet` names.

    The agents' shared store for ranks is not used: it keeps the addresses of those that are gone (pytorch #135712).
    """
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend, create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    from allears import stores

    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    name = str(uuid.uuid4()) if how.meet is None else "allears"
    parameters = RendezvousParameters("c10d", how.meet or "", name, *how.machines, address, **_TIMES)
    if how.meet is None:
        store = stores.serve(address)
        return create_handler(store, C10dRendezvousBackend(store, name), parameters)
    say(f"meeting other machines at {how.meet}")
    try:
        backend, shared = create_backend(parameters)
    except (RendezvousConnectionError, ValueError) as error:
        raise SettingsError(f"--meet {how.meet}: {error}; is the port free, and open between the machines?") from None
    return create_handler(shared, backend, parameters)


def _own_address(meet: str) -> str:
    """The address of this machine on the way to ``meet``.

    Raises:
        SettingsError: it is no ``HOST:PORT``, or the host is not known.
    """
    host, _, port = meet.rpartition(":")
    if not host or not port.isdigit():
        raise SettingsError(f"--meet must be HOST:PORT, such as gpu1:29400, not {meet}.")
    try:
        family, kind, _, _, to = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise SettingsError(f"--meet {meet}: the host is not known here: {error}.") from None
    with socket.socket(family, kind) as probe:
        probe.connect(to)  # sends nothing
        return str(probe.getsockname()[0])
