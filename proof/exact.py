"""One result on any number of devices: bits, position, memory, what blows up, and what it costs."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from proof.cases import check
from proof.commands import PLACE, allears, run
from proof.main_path import prepared
from proof.rows import Measured, Row

if TYPE_CHECKING:
    from pathlib import Path

# A Conformer with dropout, SpecAugment, batch norm and speeds; eight micro-batches, so that eight processes can share.
MODEL = (
    "plan.step_seconds=24",
    "plan.micro_batches=8",
    "augment.speed=[0.9,1.0,1.1]",
    "model.encoder.norm=batch",
)
ALONE = {"ALLEARS_THREADS": "1", "OMP_NUM_THREADS": "1"}
WORLDS = (1, 2, 3, 4, 8)
SECTIONS = ("Results that change with the number of devices", "Coming back", "Numbers that blow up")


def data() -> tuple[str, ...]:
    """Real speech, and its training part."""
    return (f"dataset={prepared('fsdd')}", "train.split=train")


def digests(out: Path) -> list[dict[str, str]]:
    """SHA-256 of each weight, buffer and tensor of the optimiser after each step."""
    return [json.loads(line)["digests"] for line in (out / "digests.jsonl").read_text(encoding="utf-8").splitlines()]


def newest(out: Path) -> Path:
    """The newest checkpoint of a run."""
    return max((out / "checkpoints").glob("step-*[0-9]"))


def sums(out: Path) -> tuple[str, str]:
    """SHA-256 of all weights and of all the optimiser's state, as the newest checkpoint's files."""
    found = json.loads((newest(out) / "checksums.json").read_text(encoding="utf-8"))
    return found["model.safetensors"]["sha256"], found["optimizer.safetensors"]["sha256"]


def trained(name: str, processes: int, *more: str, steps: int = 100) -> Path:
    """A run of its own from the start, with nothing beside its steps but one validation and one checkpoint."""
    out = PLACE / "runs" / f"exact-{name}"
    shutil.rmtree(out, ignore_errors=True)
    quiet = (f"training.steps={steps}", f"training.save_every={steps}", f"training.validate_every={steps}")
    run(
        *(sys.executable, "-m", "allears", "train", "digits", *data(), *MODEL, *quiet, "training.average=false"),
        *("training.digests=true", "training.validate_hours=0.005", *more, "--out", out, "--processes", processes),
        environment=ALONE,
    )
    return out


def bits() -> Measured:
    """Line 1."""
    told, true = [], True
    for precision in ("float32", "bf16"):
        how = f"training.precision={precision}"
        found = {sums(trained(f"{precision}-{world}", world, how)) for world in WORLDS}
        fast = sums(trained(f"{precision}-fast", 4, how, "training.reduction=fast"))
        true &= len(found) == 1 and fast not in found
        (model, _), *_ = found
        told.append(
            f"{precision}: {len(found)} SHA-256 of weights and of optimiser on worlds {WORLDS} ({model[:12]}…), "
            f"fast on 4 {'differs' if fast not in found else 'does NOT differ'}"
        )
    return Measured("100 steps of a Conformer on fsdd; " + "; ".join(told), true)


def resumed() -> Measured:
    """Line 2: three kills and two polite stops at random steps; processes and loader workers change each time."""
    steps, draw = 60, random.Random()
    whole = trained("whole", 1, steps=steps)
    out = PLACE / "runs" / "exact-moved"
    shutil.rmtree(out, ignore_errors=True)
    stops = [*sorted(draw.sample(range(3, steps - 3), 5)), steps]
    worlds, workers = (4, 3, 1, 4, 3, 1), (0, 2, 4, 0, 2, 4)
    told = []
    for number, (stop, world, threads) in enumerate(zip(stops, worlds, workers, strict=True)):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "allears", "train", "digits", *data(), *MODEL, f"training.steps={steps}"),
                *("training.save_every=7", f"training.validate_every={steps}", "training.average=false"),
                *("training.digests=true", "training.validate_hours=0.005", f"loader.workers={threads}"),
                *("--out", str(out), "--processes", str(world)),
            ],
            env={**os.environ, **ALONE},
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while process.poll() is None and (not (out / "digests.jsonl").exists() or len(digests_so_far(out)) < stop):
            time.sleep(0.005)
        kill = number % 2 == 0
        if stop < steps and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL) if kill else process.terminate()
        code = process.wait()
        told.append(f"{world} processes, {threads} workers to step {len(digests_so_far(out))} (exit {code})")
    wanted, got = digests(whole), digests(out)
    ledger = allears("inspect", "ledger", out)
    return Measured(
        f"{'; '.join(told)}: {sum(a == b for a, b in zip(wanted, got, strict=True))} of {steps} steps have the bits of "
        f"the uninterrupted run on 1; ledger complete: {ledger['complete']}, {ledger['steps']} steps",
        wanted == got and bool(ledger["complete"]) and ledger["steps"] == steps,
    )


def digests_so_far(out: Path) -> list[str]:
    """Whole lines of a file that is being written."""
    text = (out / "digests.jsonl").read_text(encoding="utf-8") if (out / "digests.jsonl").exists() else ""
    return text.split("\n")[:-1]


def at_ten_millions() -> Measured:
    """Line 3: ten millions on two processes of one machine, a million on one.

    The first batch is a micro-batch, 150 s of audio, as a device takes it. Memory is the sum of proportional set sizes.
    """
    told, true = [], True
    for utterances, ranks in ((1_000_000, 1), (10_000_000, 2)):
        how = ("--utterances", utterances, "--ranks", ranks, "--step", 100_000, "--folder", PLACE / "large", "--json")
        lines = run(sys.executable, "benchmarks/resume.py", prepared("fsdd"), *how).stdout.splitlines()
        for row in json.loads(lines[-1]):
            seconds, memory = row["first_batch_s"], row["to_first_batch_mb"]
            if ranks == 1:
                memory -= row["imports_mb"]
            true &= (seconds <= 1 and memory <= 100) if ranks == 1 else (seconds <= 8 and memory <= 1000)
            told.append(
                f"{utterances // 1_000_000} M on {ranks}, plan {row['plan']}: first batch after {seconds:.2f} s, "
                f"{memory:.0f} MB {'beyond the imports' if ranks == 1 else 'in all'} (whole first step: "
                f"{row['first_step_s']:.2f} s, {row['to_first_step_mb'] - row['imports_mb']:.0f} MB beyond them; next "
                f"epoch planned: {row['next_planned_mb'] - row['imports_mb']:.0f} MB beyond them)"
            )
    return Measured(f"three speeds, step 100,000: {'; '.join(told)}", true)


def blown_up() -> Measured:
    """Line 4."""
    steps = 12
    found: dict[str, Path] = {}
    plain = trained("plain", 2, steps=steps)
    lines = [json.loads(line) for line in (plain / "ledger" / "rank-1.jsonl").read_text().splitlines()]
    place, members = next((p, used) for p, used in lines[5]["used"].items() if len(used) > 2)
    utterance = members[1]
    for what in ("nan", "empty"):
        found[what] = PLACE / "runs" / f"exact-{what}"
        shutil.rmtree(found[what], ignore_errors=True)
        arguments = ("digits", *data(), *MODEL, f"training.steps={steps}", "training.digests=true")
        run(
            *(sys.executable, "-m", "proof.spoiled", what, utterance, 5, place, "--", "train", *arguments),
            *("training.average=false", "training.validate_hours=0.005", "--out", found[what]),
            environment=ALONE,
        )
    same = digests(found["nan"]) == digests(found["empty"])
    (line,) = [json.loads(line) for line in (found["nan"] / "quarantine.jsonl").read_text().splitlines()]
    named = (line["step"], str(line["place"]), line["utterances"]) == (5, place, [utterance])
    half = trained("scaled", 2, "training.precision=fp16", f"training.loss_scale={2**24}", steps=steps)
    reports = [json.loads(text) for text in (half / "metrics.jsonl").read_text().splitlines()]
    scales = [report["loss_scale"] for report in reports if "loss_scale" in report]
    quarantined = (half / "quarantine.jsonl").exists()
    complete = allears("inspect", "ledger", half)["complete"]
    return Measured(
        f"NaN in utterance {line['ids'][0]} on rank 1 of 2: named and in quarantine at step 5, place {place}: {named}; "
        f"{steps} steps have the bits of a run with that micro-batch empty: {same}; fp16 from 2^24: scale "
        f"{scales[0]:g} at step 0, {scales[-1]:g} at step {steps - 1}, applied {reports[-2]['applied']} of {steps}, "
        f"quarantine: {quarantined}, ledger complete: {complete}",
        named and same and scales[0] < 2**24 and not quarantined and bool(complete) and len(scales) == steps,
    )


def saving() -> Measured:
    """Line 5."""
    found = json.loads(run(sys.executable, "-m", "proof.stalls", PLACE / "stalls").stdout.splitlines()[-1])
    stall, beside, longer, plain = (
        statistics.median(found[name]) for name in ("stalls", "torch_save", "steps_with_a_save", "steps")
    )
    first, slower = found["stalls"][0], longer - plain
    killed = json.loads(run(sys.executable, "-m", "proof.stalls", PLACE / "stalls", "kill").stdout.splitlines()[-1])
    tests = ("tests/training/test_saver.py", "-k", "code_in_a_checkpoint")
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests).stdout.splitlines()[-1]
    return Measured(
        f"{found['parameters'] / 1e6:.0f} M parameters + AdamW, {found['bytes'] / 1e6:.0f} MB: the step stalls "
        f"{first:.3f} s at the first save, {stall:.3f} s in the median of {len(found['stalls'])}; torch.save "
        f"{beside:.2f} s ({max(first, stall) / beside:.1%}); a step of {plain:.2f} s is {slower:+.2f} s longer "
        f"beside it; killed at {killed['kills']} moments of a save, "
        f"{killed['sound']} times the newest complete one loads; code in the folder: {done}",
        max(first, stall, slower) <= beside / 5 and killed["sound"] == killed["kills"] == 10 and "1 passed" in done,
    )


def costs() -> Measured:
    """Line 6."""
    how = ("plan.step_seconds=32", "plan.micro_batches=4", "plan.min_seconds=0.1")
    told = allears(
        *("bench", "train", "small", *data(), *how, "tokenizer.kind=words", "--processes", "2,4"),
        *("--steps", 2, "--rounds", 8, "--out", PLACE / "bench"),
    )
    ratios = {row["processes"]: row["ratio"] for row in told["rows"] if row["reduction"] == "exact"}
    return Measured(
        ", ".join(f"{processes} processes: exact / fast {ratio:.3f}" for processes, ratio in ratios.items()),
        len(ratios) == 2 and max(ratios.values()) <= 1.03,
    )


def conditions() -> Measured:
    """Line 7."""
    found = check(*SECTIONS)
    bad = [
        f"{row.case.source} ({', '.join(sorted(set(row.outcomes.values()))) or 'no test'})"
        for row in found.rows
        if not row.holds
    ]
    tests = sum(len(row.outcomes) for row in found.rows)
    return Measured(
        f"{len(found.rows)} rows, {tests} tests build their conditions; not held: {', '.join(bad) or 'none'}; "
        f"{found.said}",
        len(found.rows) == 15 and not bad,
    )


ROWS = [
    Row(
        1, "100 steps of a Conformer in fp32 and bf16: one SHA-256 on 1, 2, 3, 4, 8 processes; fast differs at 4", bits
    ),
    Row(2, "stopped at 5 random steps, on 4 → 3 → 1 → 4 processes with 0, 2, 4 workers: the same bits", resumed),
    Row(3, "step 100,000 over 10 M utterances: first batch ≤ 8 s, ≤ 1 GB; over 1 M: ≤ 1 s, ≤ 100 MB", at_ten_millions),
    Row(4, "NaN on one rank: named, the rest used, bits as with it empty; fp16 from 2^24: repeats only", blown_up),
    Row(5, "50 M + AdamW: the step stalls ≤ 1/5 of torch.save, first save too; code does not run; 10 kills", saving),
    Row(6, "fast / exact step time on 2 and 4 processes within 1.03", costs),
    Row(7, "every row of three sections of cases.md has a test that builds the condition", conditions),
]
