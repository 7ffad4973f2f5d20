"""Kills, hangs, preemption: named, and survived. Ranks are killed, stopped and broken from outside."""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
import signal
import socket
import statistics
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allears.stopping import STOPPED
from proof.cases import check
from proof.commands import PLACE, allears
from proof.exact import digests, newest
from proof.launched import AGAIN, LOOK_SECONDS, Launched, attempts, lines, ranks, stepped, steps
from proof.main_path import prepared
from proof.rows import Measured, Row

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 200
"""Of the long run; shorter ones are its beginning, as the learning rate is constant."""

KILLS = 20
STARTS = 100
VALIDATED, SAVED = 4, 2
"""Steps between two of each: a good part of the time goes there."""

SAVING = "checkpoints/step-????????.partial"
"""What is there while a checkpoint is being written."""

PREPARED = "steps an epoch"
"""What the first rank says when everything is ready."""

FAULTS = Path(__file__).parent / "faults"


def settings(total: int = STEPS) -> list[str]:
    """A Conformer with dropout, SpecAugment, batch norm and speeds on real speech, in small steps."""
    data = prepared("fsdd")
    return [
        *(f"dataset={data}", "train.split=train", f"validation.test.dataset={data}", "validation.test.split=test"),
        *("plan.step_seconds=12", "plan.micro_batches=4", "augment.speed=[0.9,1.0,1.1]", "model.encoder.norm=batch"),
        *("optimizer.learning_rate.schedule=constant", "optimizer.learning_rate.warmup=0"),
        *("optimizer.learning_rate.value=2e-4", "training.digests=true", "training.average=false"),
        *(f"training.validate_every={VALIDATED}", f"training.save_every={SAVED}", "training.validate_hours=0.01"),
        f"training.steps={total}",
    ]


def fresh(name: str) -> Path:
    """The folder of a run that has not begun."""
    out = PLACE / "runs" / f"hangs-{name}"
    shutil.rmtree(out, ignore_errors=True)
    return out


@functools.cache
def wanted() -> list[dict[str, str]]:
    """Digests after each step of a run that nothing happens to."""
    out = fresh("whole")
    with Launched(out, settings()) as training:
        if (code := training.end(600)) != 0:
            raise RuntimeError(f"the uninterrupted run ended with {code}: {training.said()[-2000:]}")
    return digests(out)


def same(out: Path) -> tuple[bool, str]:
    """Whether all steps of a run have the bits of the uninterrupted one, and how many have."""
    got = digests(out)[:STEPS]
    equal = sum(a == b for a, b in zip(wanted(), got, strict=False))
    return equal == len(got) > 0, f"{equal} of {len(got)} steps have the bits of the uninterrupted run"


def complete(out: Path) -> bool:
    """Whether the ledger shows each utterance of each pass once."""
    found = allears("inspect", "ledger", out)
    return bool(found["complete"]) and found["epochs"] > 0


def taken_up(training: Launched, attempt: int, size: int | None = None, seconds: float = 120.0) -> None:
    """Wait for the first step of an attempt later than ``attempt``, on ``size`` ranks if that is told."""
    run, before = training.run, None

    def reached() -> bool:
        nonlocal attempt, before
        if attempts(run) > attempt:
            # A step that ended while the attempt before was killed is among these; what comes from now on is new.
            attempt, before = attempts(run), set(lines(run))
        return before is not None and stepped(run, before) > 0 and size in {None, len(ranks(run))}

    training.until(reached, seconds)


def kill(pid: int, training: Launched) -> float:
    """Kill a rank (or a launcher); seconds until the next optimiser step is done."""
    attempt = attempts(training.run)
    os.kill(pid, signal.SIGKILL)
    at = time.monotonic()
    taken_up(training, attempt)
    return time.monotonic() - at


def killed(processes: int) -> tuple[bool, str]:
    """The long run, of which ranks are killed at random moments: whether all is as it should be, and the figures.

    A kill comes a random number of steps after the last recovery and at a random moment of a step, by the run's own
    pace, so that they spread over the run on any machine.
    """
    draw, out = random.Random(), fresh(f"killed-{processes}")
    victims = [number % processes for number in range(KILLS)]
    draw.shuffle(victims)
    seconds, saving = [], 0
    with Launched(out, settings(), ("--processes", processes)) as training:
        training.until(lambda: steps(out))
        for victim in victims:
            before, since = set(lines(out)), time.monotonic()
            more = draw.randint(4, 8)
            training.until_stepped(before, more)
            time.sleep(draw.uniform(0, (time.monotonic() - since) / more))
            saving += any(out.glob(SAVING))
            seconds.append(kill(ranks(out)[victim], training))
        code = training.end(300)
        said = training.said()
    told = re.findall(r"^error: rank (\d+) on \S+(?: \((.*)\))?: it was killed by SIGKILL", said, re.MULTILINE)
    phases = Counter(
        re.sub(r"^last heard: |step \d+, |, utterances .*|step \d+$", "", where) or "not told" for _, where in told
    )
    named = [int(rank) for rank, _ in told] == victims
    restarts = said.count(AGAIN)
    median, worst = statistics.median(seconds), max(seconds)
    equal, bits = same(out)
    whole = complete(out)
    return (
        equal
        and whole
        and named
        and code == 0
        and len(steps(out)) == STEPS
        and restarts == attempts(out) - 1 == KILLS
        and median <= {2: 3.0, 4: 6.0}[processes]
        and worst <= 12
    ), (
        f"{processes} processes: {len(seconds)} kills ({victims.count(0)} of rank 0; in "
        f"{', '.join(f'{phase} {count}' for phase, count in phases.most_common())}; {saving} while a checkpoint was "
        f"being written), each rank named: {named}; {restarts} restarts; kill → next step median {median:.1f} s, worst "
        f"{worst:.1f} s; {bits}; ledger complete: {whole}; exit {code}"
    )


def kills() -> Measured:
    """Line 1."""
    found = [killed(processes) for processes in (2, 4)]
    return Measured("; ".join(text for _, text in found), all(true for true, _ in found))


def resized() -> Measured:
    """Line 2: each launcher stands for a machine; the first one serves the meeting."""
    total, out = 110, fresh("resized")
    told: list[str] = []
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    options = ("--processes", 1, "--machines", "1:4", "--meet", f"localhost:{port}")
    with ExitStack() as stack:

        def machine(name: str) -> Launched:
            return stack.enter_context(Launched(out, settings(total), options, name))

        def a_rank_dies(size: int) -> None:
            before = set(lines(out))
            first.until_stepped(before, 4)
            told.append(f"a rank of {size} killed: {kill(random.choice(ranks(out)), first):.1f} s")

        first = machine("first")
        first.until(lambda: first.serves(port))  # of several on one machine, whoever is first serves
        others = [machine(f"early-{number}") for number in range(3)]
        taken_up(first, 0, 4)
        a_rank_dies(4)
        for size in (3, 1):
            attempt, at = attempts(out), time.monotonic()
            while len(others) >= size:
                others.pop().process.kill()
            taken_up(first, attempt, size)
            told.append(f"→ {size}: {time.monotonic() - at:.1f} s")
            a_rank_dies(size)
        attempt, at = attempts(out), time.monotonic()
        others = [machine(f"late-{number}") for number in range(3)]
        taken_up(first, attempt, 4)
        told.append(f"→ 4 (from the start of three launchers): {time.monotonic() - at:.1f} s")
        a_rank_dies(4)
        codes = [launcher.end(120) for launcher in (first, *others)]
    equal, bits = same(out)
    whole = complete(out)
    return Measured(
        f"4 launchers of one process that meet; kill → next step: {', '.join(told)}; {bits}; ledger complete: {whole}; "
        f"exit {', '.join(map(str, codes))}",
        equal and whole and len(digests(out)) == total and codes == [0] * 4,
    )


def named() -> Measured:
    """Line 3."""
    found = [*map(faulty, ("raise", "leave")), halted(), disagreeing()]
    return Measured("; ".join(text for _, text in found), all(true for true, _ in found))


def faulty(fault: str) -> tuple[bool, str]:
    """A loader's worker of rank 1 raises an exception, or the rank leaves with exit code 0; once."""
    out = fresh(fault)
    mark = out.with_name(f"{out.name}-mark")
    mark.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, (str(FAULTS), os.environ.get("PYTHONPATH"))))
    how = {"PYTHONPATH": path, "ALLEARS_PROOF_FAULT": fault, "ALLEARS_PROOF_MARK": str(mark)}
    with Launched(out, settings(20), **how) as training:
        training.until(mark.exists)
        at, attempt = time.monotonic(), attempts(out)
        taken_up(training, attempt)
        seconds = time.monotonic() - at
        return _named(training, 1, {"raise": "the disk is on fire", "leave": "exit code 0"}[fault], seconds)


def halted() -> tuple[bool, str]:
    """A rank is stopped with SIGSTOP."""
    out, rank = fresh("halted"), random.randrange(2)
    with Launched(out, settings(20)) as training:
        training.until(lambda: len(steps(out)) > 3)
        at, attempt = time.monotonic(), attempts(out)
        os.kill(ranks(out)[rank], signal.SIGSTOP)
        taken_up(training, attempt)
        return _named(training, rank, "SIGSTOP", time.monotonic() - at)


def _named(training: Launched, rank: int, cause: str, seconds: float) -> tuple[bool, str]:
    """Whether the error names the rank and the cause, one restart was enough, and the bits are what they should be."""
    code = training.end()
    said = re.findall(r"^error: .*$", training.said(), re.MULTILINE)
    equal, bits = same(training.run)
    right = len(said) == 1 and said[0].startswith(f"error: rank {rank} on ") and cause in said[0]
    return (
        right and equal and seconds <= 15 and code == 0 and training.said().count(AGAIN) == 1,
        f"{' / '.join(said) or 'nothing is said'} (next step after {seconds:.1f} s; {bits}; exit {code})",
    )


def disagreeing() -> tuple[bool, str]:
    """Two launchers that meet, one with another setting."""
    out = fresh("disagreeing")
    with socket.create_server(("localhost", 0)) as free:
        options = ("--machines", 2, "--meet", f"localhost:{free.getsockname()[1]}")
    with (
        Launched(out, settings(20), options, "one") as one,
        Launched(out, [*settings(20), "optimizer.clip=4"], options, "other") as other,
    ):
        codes = [one.end(), other.end()]
        seconds = time.monotonic() - one.began
        said = [re.findall(r"^error: .*$", launcher.said(), re.MULTILINE) for launcher in (one, other)]
    cause = re.compile(r"optimizer\.clip is \S+ on rank 0 and \S+ on rank 1")
    right = all(len(errors) == 1 and cause.search(errors[0]) for errors in said)
    again = AGAIN in one.said() + other.said()
    return right and seconds <= 15 and not again and 0 not in codes, (
        f"{' / '.join(errors[0] if errors else 'nothing is said' for errors in said)} ({seconds:.1f} s after start; "
        f"started again: {again}; exit {codes[0]} and {codes[1]})"
    )


def preempted() -> Measured:
    """Line 4: one run for each signal, stopped in each phase and gone on with by the same command."""
    found = [preempted_by(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
    return Measured("; ".join(text for _, text in found), all(true for true, _ in found))


@dataclass(frozen=True)
class Phase:
    """Where a signal is sent.

    Attributes:
        name: of the phase.
        reached: whether it has begun.
        lasts: whether it goes on, asked once the signal has been sent; a save is over too soon to ask.
    """

    name: str
    reached: Callable[[Launched], bool]
    lasts: Callable[[Launched], bool] = lambda _: True


def phases(number: signal.Signals, total: int) -> list[Phase]:
    """All of them, in the order in which one run comes through them."""

    def steps_of(it: Launched) -> int:
        return len(steps(it.run))

    def saves(it: Launched) -> bool:
        return any(it.run.glob(SAVING))

    def last_save(it: Launched) -> bool:
        return steps_of(it) == total and saves(it)

    due = 3 * VALIDATED
    return [
        Phase("the launcher's import", lambda it: it.hears(number), lambda it: not it.said()),
        Phase("preparing", lambda it: attempts(it.run) > 0, lambda it: PREPARED not in it.said()),
        Phase("the probe", lambda it: PREPARED in it.said(), lambda it: not (it.run / "probe.json").exists()),
        Phase("a step", lambda it: steps_of(it) >= 3, lambda it: steps_of(it) < VALIDATED),
        Phase("validation", lambda it: steps_of(it) == due, lambda it: "validation" not in lines(it.run)[-1]),
        Phase("a save", saves),
        Phase("the last save", last_save),
    ]


def preempted_by(number: signal.Signals) -> tuple[bool, str]:
    """One run, stopped by a signal in each phase, and then left alone: what the last save leaves to be done is done."""
    total, out = 24, fresh(number.name.lower())
    found = [asked(phase, number, out, total) for phase in phases(number, total)]
    with Launched(out, settings(total)) as training:
        code = training.end()
    equal, bits = same(out)
    true = equal and code == 0 and len(steps(out)) == total and all(right for right, _ in found)
    return true, f"{number.name}: {'; '.join(text for _, text in found)}; then exit {code}, {bits}"


def asked(phase: Phase, number: signal.Signals, out: Path, total: int) -> tuple[bool, str]:
    """Start a run, or go on with it, and send a signal in one phase."""
    before = len(steps(out))
    with Launched(out, settings(total)) as training:
        training.until(lambda: training.hears(number) and phase.reached(training))
        training.process.send_signal(number)
        sent, met = time.monotonic(), phase.lasts(training)
        code = training.end()
        told = f"{phase.name}{'' if met else ' (MISSED)'}: exit {code} after {time.monotonic() - sent:.1f} s"
    right = met and code == STOPPED
    done = len(steps(out))
    if done == before:
        return right, f"{told}, nothing to save"
    late = newest(out).stat().st_ctime - (out / "metrics.jsonl").stat().st_mtime  # its rename, the step's last line
    right = right and newest(out).name == f"step-{done:08d}" and late <= 5
    return right, f"{told}, {newest(out).name} {late:.2f} s after the step"


def starts() -> Measured:
    """Line 5."""
    out = fresh("starts")
    seconds, codes, left, ports = [], Counter[int](), list[str](), 0
    for _ in range(STARTS):
        with Launched(out, settings(100_000)) as training:
            before = set(lines(out))
            training.until_stepped(before)
            training.process.terminate()
            codes[training.end()] += 1
            seconds.append(time.monotonic() - training.began)
            ended = time.monotonic()
            while (found := training.left()) and time.monotonic() - ended < 2:
                time.sleep(LOOK_SECONDS)
            left += found
            ports += bool(re.search("address already in use|EADDRINUSE", training.said(), re.IGNORECASE))
    equal, bits = same(out)
    return Measured(
        f"{len(seconds)} starts and stops of 2 processes, median {statistics.median(seconds):.1f} s, worst "
        f"{max(seconds):.1f} s; exit {', '.join(f'{code}: {count} times' for code, count in codes.items())}; processes "
        f"left: {', '.join(left) or 'none'}; port conflicts: {ports}; {bits}",
        codes == {75: STARTS} and not left and not ports and equal,
    )


def conditions() -> Measured:
    """Line 6."""
    found = check("Ranks that disagree")
    bad = [
        f"{row.case.source} ({', '.join(sorted(set(row.outcomes.values()))) or 'no test'})"
        for row in found.rows
        if not row.holds
    ]
    tests = sum(len(row.outcomes) for row in found.rows)
    return Measured(
        f"{len(found.rows)} rows, {tests} tests build their conditions; not held: {', '.join(bad) or 'none'}; "
        f"{found.said}",
        len(found.rows) == 7 and not bad,
    )


ROWS = [
    Row(1, "20 kills of any rank on 2 and on 4: one restart each, median ≤ 3 s (6 on 4), worst ≤ 12; same bits", kills),
    Row(2, "the world shrinks and grows between kills, 4 → 3 → 1 → 4: the same bits, ledger complete", resized),
    Row(
        3, "an exception, SIGSTOP, an early exit, another config: ends or restarts ≤ 15 s, rank and cause named", named
    ),
    Row(
        4, "SIGTERM and SIGUSR1 in each phase: saved ≤ 5 s after the step, exit 75, resumed to the same bits", preempted
    ),
    Row(5, "100 starts and stops of 2 processes: no hang, no orphan, no port conflict", starts),
    Row(6, "every row of Ranks that disagree in cases.md has a test that builds the condition", conditions),
]
