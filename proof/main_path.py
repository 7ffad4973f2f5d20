"""The main path in full depth: features, text, Conformer, precisions, exact error rates; on real speech."""

from __future__ import annotations

import functools
import json
import math
import resource
import shutil
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from proof.commands import PLACE, allears, losses, run
from proof.rows import ROOT, Measured, Row

if TYPE_CHECKING:
    from pathlib import Path

DATA = ROOT.parent / "shared" / "data"
SEEDS = (0, 1, 2)


def tests(*names: str) -> str:
    """The last line of pytest on some tests, none of which may be skipped."""
    last = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names).stdout.splitlines()[-1]
    if "skipped" in last:
        raise RuntimeError(f"tests were skipped: {last}")
    return last.strip("= ")


@functools.cache
def prepared(corpus: str) -> Path:
    """A real corpus, prepared."""
    place = PLACE / corpus
    shutil.rmtree(place, ignore_errors=True)
    allears("prepare", DATA / corpus, place)
    return place


@functools.cache
def spoken(language: str) -> Path:
    """Two hours of synthetic sentences, prepared; the test is spoken by voices that training does not hear."""
    place = PLACE / f"spoken-{language}"
    shutil.rmtree(place, ignore_errors=True)
    allears("synthesize", place / "corpus", "--hours", 2, "--language", language)
    allears("prepare", place / "corpus", place / "dataset")
    return place / "dataset"


def train(name: str, config: str, dataset: Path, *more: object) -> tuple[Path, dict[str, Any]]:
    """Train from the start on two processes: the run and what it says of itself."""
    out = PLACE / "runs" / name
    shutil.rmtree(out, ignore_errors=True)
    data = (f"dataset={dataset}", "train.split=train")
    return out, allears("train", config, *data, "--out", out, "--processes", 2, *more)


def score(out: Path, dataset: Path, *more: object) -> dict[str, Any]:
    """Evaluate a run on the dataset's test split."""
    return allears("evaluate", out, dataset, "--split", "test", *more)


def apart(only_what_sounds: bool, **environment: str) -> dict[str, float]:
    """Greatest difference from the reference of each feature kind, alone and in a padded batch."""
    code = (
        "import sys; sys.path.insert(0, 'tests/layers'); import test_features as t\n"
        f"for what, error in t.compared(only_what_sounds={only_what_sounds}): print(what.split()[1], error)"
    )
    found: dict[str, float] = {}
    for line in run(sys.executable, "-c", code, environment=environment).stdout.splitlines():
        kind, error = line.split()
        found[kind] = max(found.get(kind, 0.0), float(error))
    return found


def features() -> Measured:
    """Line 1: all bins with the FFT that the reference was made with; with the machine's own, all that sound.

    Bins below 1e-6 of the frame's greatest hold rounding noise of the float32 FFT, whose logarithm is as large as any.
    """
    same, sounding, all_bins = apart(False, MKL_CBWR="COMPATIBLE"), apart(True), apart(False)
    silent = tests("tests/layers/test_features.py", "-k", "digital_silence or alone_and_in_any_batch")
    return Measured(
        "; ".join(
            f"{kind}: {same[kind]:.1e} with MKL's portable FFT, {sounding[kind]:.1e} with this machine's in bins above "
            f"1e-6 of the frame's greatest (all bins: {all_bins[kind]:.1e})"
            for kind in same
        )
        + f"; silence is zeros, a padded batch changes nothing: {silent}",
        max(*same.values(), *sounding.values()) <= 1e-3 and len(same) == 3 and " passed" in silent,
    )


def digits() -> Measured:
    """Line 2."""
    dataset = prepared("fsdd")
    rights, seconds, parameters = [], [], []
    for seed in SEEDS:
        out, said = train(f"digits-{seed}", "digits", dataset, f"seed={seed}")
        rights.append(1 - score(out, dataset)["wer"])
        seconds.append(said["cpu_seconds"])
        parameters.append(said["parameters"])
    return Measured(
        f"right: {', '.join(f'{right:.2%}' for right in rights)}, mean {statistics.mean(rights):.2%}; "
        f"CPU-seconds {', '.join(f'{spent:.0f}' for spent in seconds)}; {parameters[0]:,} parameters",
        min(rights) >= 0.985
        and statistics.mean(rights) >= 0.99
        and max(seconds) <= 400
        and max(parameters) < 2_000_000,
    )


def mandarin() -> Measured:
    """Line 3."""
    figures, true = [], True
    for language, rate in (("zh", "cer"), ("mixed", "mer")):
        dataset = spoken(language)
        out, said = train(f"spoken-{language}", "mandarin", dataset)
        found = score(out, dataset)
        figures.append(f"{language}: {rate.upper()} {found[rate]:.2%} after {said['cpu_seconds']:.0f} CPU-seconds")
        true = true and found[rate] <= 0.10 and said["cpu_seconds"] <= 480
    dataset = prepared("aishell_sample")
    out, said = train("aishell", "mandarin", dataset, "training.steps=800")
    allears("transcribe", out, dataset, "--split", "test", "--out", PLACE / "aishell.jsonl")
    texts = [json.loads(line)["text"] for line in (PLACE / "aishell.jsonl").read_text("utf-8").splitlines()]
    letters = [letter for text in texts for letter in text if not letter.isspace()]
    chinese = sum("\u4e00" <= letter <= "\u9fff" for letter in letters)
    figures.append(
        f"aishell_sample: {len(texts)} transcripts, {chinese} of {len(letters)} letters Chinese, "
        f"CER {score(out, dataset)['cer']:.0%} after {said['cpu_seconds']:.0f} CPU-seconds"
    )
    return Measured("; ".join(figures), true and len(letters) > 0 and chinese == len(letters))


def precisions() -> Measured:
    """Line 4: the mean loss of the run, and of each 30 steps beside a control.

    Rounding is amplified once the loss is small: float32 on one process with two threads, the control, leaves float32
    on two processes with one each by as much as half precision does. So what half precision costs is judged by the
    run's mean, and by the errors at its end.
    """
    dataset = prepared("fsdd")
    curves, wrong, finite = {}, {}, True
    for name, *how in (
        ("float32", "training.precision=float32"),
        ("control", "training.precision=float32", "--processes", 1),
        ("bf16", "training.precision=bf16"),
        ("fp16", "training.precision=fp16"),
    ):
        out, _ = train(f"digits-{name}", "digits", dataset, "training.steps=300", *how)
        curves[name] = losses(out)
        finite = finite and all(map(math.isfinite, curves[name]))
        wrong[name] = score(out, dataset)["wer"]
    whole = curves.pop("float32")

    def windows(curve: list[float]) -> float:
        means = [[statistics.mean(one[n : n + 30]) for n in range(0, 300, 30)] for one in (curve, whole)]
        return max(float(abs(a / b - 1)) for a, b in zip(*means, strict=True))

    means = {name: statistics.mean(curve) / statistics.mean(whole) - 1 for name, curve in curves.items()}
    start = "training.loss_scale=16777216"
    out, _ = train("digits-overflow", "digits", dataset, "training.steps=20", "training.precision=fp16", start)
    scales = [
        json.loads(line)["loss_scale"]
        for line in (out / "metrics.jsonl").read_text().splitlines()
        if "loss_scale" in line
    ]
    lowered = scales[-1] < 2**24 and len(scales) == 20 and all(map(math.isfinite, losses(out)))
    norms = tests("tests/layers/test_batch_norm.py")
    yes = prepared("yesno")
    yes_run, _ = train("yesno", "digits", yes, "training.steps=100")
    return Measured(
        f"difference from the float32 loss, mean of 300 steps (greatest of any 30): "
        f"{', '.join(f'{name} {value:+.1%} ({windows(curves[name]):.1%})' for name, value in means.items())}; "
        f"wrong: {', '.join(f'{name} {value:.2%}' for name, value in wrong.items())}; "
        f"started at 2^24 the scale is 2^{math.log2(scales[-1]):.0f} after 20 steps; all losses finite: {finite}; "
        f"batch norm in float32: {norms}; yesno: {score(yes_run, yes)['wer']:.1%} wrong",
        max(map(abs, means.values())) <= 0.05
        and max(abs(value - wrong["float32"]) for value in wrong.values()) <= 0.01
        and lowered
        and finite
        and " passed" in norms,
    )


def same_everywhere() -> Measured:
    """Line 5."""
    dataset = spoken("mixed")
    out, _ = train("for-scoring", "mandarin", dataset, "training.steps=250")
    found = {}
    for processes in (1, 2):
        for batch in (1, 16):
            score(out, dataset, "--processes", processes, "--batch", batch, "--name", "same")
            lines = (out / "evaluation" / "same" / "hypotheses.jsonl").read_text("utf-8").splitlines()
            texts = [(json.loads(line)["id"], json.loads(line)["text"]) for line in lines]
            result = json.loads((out / "evaluation" / "same" / "result.json").read_text("utf-8"))
            found[processes, batch] = (texts, [result[key] for key in ("errors", "units", "wer", "cer", "mer")])
    first = found[1, 1]
    same = all(value == first for value in found.values())
    by_hand = tests("tests/scoring/test_by_hand.py")
    return Measured(
        f"{len(first[0])} hypotheses, {first[1][0]} errors of {first[1][1]} units, "
        f"{'the same' if same else 'NOT the same'} on 1 and 2 processes with batches of 1 and 16; "
        f"mixed pairs by hand: {by_hand}",
        same and 0 < first[1][0] < first[1][1] and " passed" in by_hand,
    )


def learners() -> Measured:
    """Line 6."""
    dataset = prepared("speechocean")
    plain, said = train("speechocean", "tiny", dataset, *CHILDREN)
    first = score(plain, dataset)
    donor = (f"init_from.run={demo_run()}", "init_from.part=encoder")
    warm, warm_said = train("speechocean-from-demo", "tiny", dataset, *CHILDREN, *donor)
    second = score(warm, dataset)
    table = [(first["cer"], first["wer"]), (second["cer"], second["wer"])]
    readme = (ROOT / "README.md").read_text("utf-8")
    there = all(f"{rate:.1%}" in readme for pair in table for rate in pair)
    return Measured(
        f"from nothing: CER {first['cer']:.1%}, WER {first['wer']:.1%} ({said['cpu_seconds']:.0f} CPU-seconds); "
        f"from the demo's encoder: CER {second['cer']:.1%}, WER {second['wer']:.1%} "
        f"({warm_said['cpu_seconds']:.0f} CPU-seconds); in the README: {there}",
        there and max(said["cpu_seconds"], warm_said["cpu_seconds"]) <= 1200,
    )


CHILDREN = (
    "model.encoder.blocks=5",
    "model.encoder.dropout=0.2",
    "tokenizer.kind=characters",
    "plan.step_seconds=60",
    "plan.micro_batches=2",
    "optimizer.learning_rate=4e-3",
    "training.epochs=90",
    "training.validate_every=400",
    "training.save_every=400",
)
"""Tiny with the demo's encoder, for forty minutes of speech, much of it by children, in 20 CPU-minutes."""


@functools.cache
def demo_run() -> Path:
    """The demo's run."""
    place = PLACE / "demo"
    allears("demo", place)
    return place


def an_hour() -> Measured:
    """Line 7: an hour made of the sentences of a real corpus; the greatest memory is that of the process."""
    dataset = prepared("speechocean")
    out, _ = train("for-scoring", "tiny", dataset, "training.steps=40")
    place = PLACE / "hour.flac"
    run(sys.executable, "-m", "proof.hour", DATA / "speechocean", place)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    code = (
        "import resource, subprocess, sys; "
        "subprocess.run([sys.executable, '-m', 'allears', 'transcribe', *sys.argv[1:], '--json'], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(out), str(place)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    *_, said, peak = done.stdout.splitlines()
    segments = next(iter(json.loads(said)["segments"].values()))
    covered = segments[-1]["end"]
    return Measured(
        f"{covered:.0f} s of audio in {len(segments)} segments with {int(peak) / 2**20:.2f} GiB "
        f"(peak resident memory; before: {before / 2**20:.2f})",
        int(peak) * 1024 <= 1e9 and covered >= 3500,
    )


ROWS = [
    Row(1, "golden/features.npz matched within 1e-3, also in a padded batch; normalised silence: zeros", features),
    Row(2, "fsdd: Conformer < 2 M, ≤ 400 CPU-seconds: ≥ 98.5 % right in each of 3 seeds, ≥ 99 % on average", digits),
    Row(3, "synthetic Mandarin and mixed: CER and MER ≤ 10 % within 480 CPU-seconds; aishell: characters", mandarin),
    Row(4, "bf16 and fp16 follow the fp32 loss within 5 % and end within 1 %; overflow lowers the scale", precisions),
    Row(5, "the same hypotheses and counts on 1 and 2 processes, batches of 1 and 16; mer as by hand", same_everywhere),
    Row(6, "speechocean in 20 CPU-minutes, and from the demo's encoder; in the README's table", learners),
    Row(7, "one hour of audio transcribed with ≤ 1 GB", an_hour),
]
