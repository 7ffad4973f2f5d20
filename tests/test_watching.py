"""What a process says of itself, and its end when it does nothing: real processes that stop moving."""

from __future__ import annotations

import subprocess
import sys
import time

from allears import watching

STALL = 0.6  # seconds; the end comes at one and a half times that
STUCK = {
    "asleep": "time.sleep(30)",
    "holding the interpreter": "sum(range(10**13))",
}
ALIVE = {
    "moving": "for _ in range(40): watching.go_on(); time.sleep(0.05)",
    "waiting": "with watching.waiting(): time.sleep(2)",
}
PROGRAM = """
import time
from allears import watching
watching.start(3, None, {stall})
def at_work():
    watching.move("forward", 14)
    {what}
at_work()
"""


def test_a_process_that_does_not_move_ends_by_itself_with_its_stacks() -> None:
    began = time.monotonic()
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(stall=STALL, what=what)], stderr=subprocess.PIPE, text=True
        )
        for name, what in {**STUCK, **ALIVE}.items()
    }
    said = {name: process.communicate(timeout=30)[1] for name, process in started.items()}
    assert time.monotonic() - began < 20
    for name in STUCK:
        assert started[name].returncode == 1, name
        assert "in at_work" in said[name], name
    assert "error: rank 3 (step 14, forward) has not moved for 0.9 s; it ends" in said["asleep"]
    assert said["holding the interpreter"].startswith("Timeout"), "the alarm ends what no thread of Python can"
    for name in ALIVE:
        assert (started[name].returncode, said[name]) == (0, ""), name


def test_a_pulse_tells_step_phase_and_the_first_utterances() -> None:
    before = watching.now().moves
    with watching.named(lambda numbers: [f"u{number}" for number in numbers]):
        watching.move("forward", 14, range(8))
    pulse = watching.now()
    assert str(pulse) == "step 14, forward, utterances u0, u1, u2, u3, u4 and 3 more"
    assert (pulse.moves, pulse.more, pulse.waiting) == (before + 1, 3, False)
    assert watching.Pulse.of(pulse.json()) == pulse
    watching.go_on([9])
    assert (watching.now().step, watching.now().utterances) == (14, ()), "who is named outside has no ids"


def test_waiting_ends_with_what_was_before_and_counts_as_moving() -> None:
    watching.move("reduce", 2)
    before = watching.now()
    with watching.waiting():
        assert watching.now().waiting
    after = watching.now()
    assert (after.phase, after.step, after.waiting) == ("reduce", 2, False)
    assert after.moves > before.moves


def test_utterances_are_named_only_when_somebody_asks() -> None:
    asked: list[list[int]] = []

    def ids(numbers: list[int]) -> list[str]:
        asked.append(numbers)
        return list(map(str, numbers))

    with watching.named(ids):
        watching.move("forward", 1, [4, 5])
        assert not asked
        watching.now()
    assert asked == [[4, 5]]


def test_a_move_costs_microseconds() -> None:
    rounds, count = [], 2000
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(count):
            watching.move("forward", 14, (1, 2))
        rounds.append((time.perf_counter() - began) / count)
    assert min(rounds) < 5e-6, "1.1 was measured on one busy core of two"
