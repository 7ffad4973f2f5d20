"""A run's ``metrics.jsonl`` → curves, a summary, and what to change; also while the run is going on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from allears.errors import DataError, SettingsError
from allears.reporting import counted
from allears.settings import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

ENOUGH = 20
"""Steps from which a run can be judged."""
PARTS = ("data", "compute", "communication", "other")
"""Where the time of a step goes."""
_COLUMNS = (
    "epoch", "loss", "grad_norm", "clipped", "learning_rate", "utterances", "audio_seconds", "tokens", "padding",
    "memory_bytes", "rejected",
)  # fmt: skip
RATES = ("wer", "cer", "mer")


@dataclass(frozen=True)
class Curves:
    """What a run wrote of its steps.

    Attributes:
        run: its folder.
        settings: its ``settings.yaml``; empty where there is none.
        steps: int64 [n], plan steps in order.
        columns: float64 [n] each: the fields of a step's line, the parts of its seconds, and their sum ``seconds``;
            nan where a line lacks one or it is not finite.
        validation: name of a set → name of a rate → (steps [m], rates [m]).
        headlines: name of a set → the rate that its lines call its headline, where they do.
        unreadable: lines that are no step and no validation; the last one, when it is still being written, not counted.
    """

    run: Path
    settings: Mapping[str, Any]
    steps: NDArray[np.int64]
    columns: dict[str, Numbers]
    validation: dict[str, dict[str, tuple[NDArray[np.int64], Numbers]]]
    headlines: Mapping[str, str]
    unreadable: int

    def __len__(self) -> int:
        return len(self.steps)

    def headline(self, name: str) -> str:
        """Which rate of a validation set selects: the config's choice, else its lines', else the first it has."""
        rates = self.validation[name]
        wanted = (_setting(self.settings, "training.select"), self.headlines.get(name))
        return next((rate for rate in wanted if rate in rates), next(iter(rates)))


def read_curves(run: Path) -> Curves:
    """Read the metrics of a run, finished or not.

    Raises:
        DataError: the folder has none, or nothing in them can be used.
    """
    path = run / "metrics.jsonl"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); name the folder of a run, as `allears train` wrote it."
        ) from error
    steps: dict[int, dict[str, Any]] = {}
    validations: dict[tuple[str, int], dict[str, Any]] = {}
    unreadable = 0
    *lines, last = text.split("\n")  # what follows the last line break is nothing, or a line that is being written
    for line in (*lines, last):
        if not line.strip():
            continue
        found = _line(line)
        if found is None:
            unreadable += line is not last
        elif "validation" in found:
            validations[str(found["validation"]), found["step"]] = found
        else:
            steps[found["step"]] = found  # written anew by a resumed run: the later one counts
    order = sorted(steps)
    rows = [steps[step] for step in order]
    columns = {name: np.array([_number(row.get(name)) for row in rows]) for name in _COLUMNS}
    columns |= {name: np.array([_number(_mapping(row.get("seconds")).get(name)) for row in rows]) for name in PARTS}
    columns["seconds"] = np.sum([columns[name] for name in PARTS], axis=0)
    if unreadable and not steps and not validations:
        raise DataError(f"{path}: none of its lines is a step or a validation; name the folder of a run.")
    if steps and not validations and not any(np.isfinite(values).any() for values in columns.values()):
        raise DataError(f"{path}: no value of its {counted(len(steps), 'step')} is a finite number; name another run.")
    headlines = {name: line["headline"] for (name, _), line in validations.items() if "headline" in line}
    steps_taken, validation = np.array(order, np.int64), _validation(validations)
    return Curves(run, _settings(run), steps_taken, columns, validation, headlines, unreadable)


def _line(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    known = isinstance(found, dict) and type(found.get("step")) is int
    return found if known and ("validation" in found or "loss" in found) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _settings(run: Path) -> Mapping[str, Any]:
    """The run's settings as they stand there: of any version, since they are only quoted."""
    try:
        return read(str(run / "settings.yaml"))
    except SettingsError:
        return {}


def _validation(
    lines: Mapping[tuple[str, int], Mapping[str, Any]],
) -> dict[str, dict[str, tuple[NDArray[np.int64], Numbers]]]:
    found: dict[str, dict[str, tuple[NDArray[np.int64], Numbers]]] = {}
    for name in dict.fromkeys(name for name, _ in lines):
        of_set = sorted((step, line) for (other, step), line in lines.items() if other == name)
        for rate in RATES:
            points = [(step, _number(line[rate])) for step, line in of_set if rate in line]
            if points:
                at, values = zip(*points, strict=True)
                found.setdefault(name, {})[rate] = np.array(at, np.int64), np.array(values)
    return found


def smoothed(values: Numbers, window: int) -> Numbers:
    """The mean over ``window`` neighbours of each of ``values`` [n], fewer at the ends; nan counts for nothing."""
    half = window // 2
    known = np.isfinite(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(known, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(known)))
    places = np.arange(len(values))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    with np.errstate(invalid="ignore"):
        mean: Numbers = (sums[high] - sums[low]) / (counts[high] - counts[low])
    return mean


@dataclass(frozen=True, slots=True)
class Best:
    """The best validation: on which set, by which rate, after how many steps."""

    name: str
    rate: str
    value: float
    step: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers; nan where the metrics say nothing.

    Attributes:
        steps: how many are in the metrics.
        epochs: begun.
        audio_hours: heard, passes counted again and again.
        seconds: in steps; validations and checkpoints are not in it.
        shares: part of a step → share of the time, the first step (start-up) left out.
        times_real: seconds of audio a second.
        loss: smoothed, at the end.
        best: lowest error rate of the first validation set; None before the first validation.
        clipped: share of the steps.
        padding: mean share.
        memory_bytes: peak.
        rejected: utterances that could not be used, over all steps.
        verdicts: what to change, the most costly first; one sentence when there is nothing.
    """

    steps: int
    epochs: int
    audio_hours: float
    seconds: float
    shares: dict[str, float]
    times_real: float
    loss: float
    best: Best | None
    clipped: float
    padding: float
    memory_bytes: float
    rejected: int
    verdicts: list[str]


def summary(curves: Curves) -> Summary:
    """Sum up a run of any number of steps, none included."""
    columns = curves.columns
    warm = slice(1, None) if len(curves) > 1 else slice(None)
    spent = {name: float(np.nansum(columns[name][warm])) for name in PARTS}
    total = sum(spent.values())
    shares = {name: seconds / total for name, seconds in spent.items()} if total else {}
    clipped, padding = _mean(columns["clipped"]), _mean(columns["padding"])
    epochs = columns["epoch"][np.isfinite(columns["epoch"])]
    losses = smoothed(columns["loss"], window(len(curves)))
    settled = _mean(columns["clipped"][_warmed_up(curves) :])
    said = verdicts(shares, settled, padding, curves.settings) if len(curves) >= ENOUGH else [_too_few(curves)]
    if len(curves) and not np.isfinite(columns["loss"]).any():
        said.insert(0, "no step has a finite loss: lower optimizer.learning_rate.value, and look for broken data.")
    return Summary(
        steps=len(curves),
        epochs=int(epochs.max()) + 1 if len(epochs) else 0,
        audio_hours=float(np.nansum(columns["audio_seconds"])) / 3600,
        seconds=float(np.nansum(columns["seconds"])),
        shares=shares,
        times_real=float(np.nansum(columns["audio_seconds"][warm])) / total if total else math.nan,
        loss=float(losses[-1]) if len(losses) else math.nan,
        best=_best(curves),
        clipped=clipped,
        padding=padding,
        memory_bytes=float(np.nanmax(columns["memory_bytes"], initial=0.0)),
        rejected=int(np.nansum(columns["rejected"])),
        verdicts=said,
    )


def _warmed_up(curves: Curves) -> int:
    """How many of the steps were taken before the learning rate was at its highest; all of them if few came after.

    Gradients are large there and clipping is what makes them harmless: it says nothing of the settings.
    """
    rates = curves.columns["learning_rate"]
    steps = int(np.nanargmax(rates)) if np.isfinite(rates).any() else 0
    return steps if len(curves) - steps >= ENOUGH else len(curves)


def _too_few(curves: Curves) -> str:
    return f"{counted(len(curves), 'step')}: too few to judge." if len(curves) else "no step has ended yet."


def window(steps: int) -> int:
    """Over how many steps curves are smoothed."""
    return max(1, steps // 40)


def _best(curves: Curves) -> Best | None:
    for name, rates in curves.validation.items():
        rate = curves.headline(name)
        steps, values = rates[rate]
        if np.isfinite(values).any():
            at = int(np.nanargmin(values))
            return Best(name, rate, float(values[at]), int(steps[at]) + 1)
    return None


def verdicts(shares: Mapping[str, float], clipped: float, padding: float, settings: Mapping[str, Any]) -> list[str]:
    """What is out of the ordinary, with its remedy, and what each setting is now.

    Args:
        shares: part of a step → share of the time.
        clipped: share of the steps after the warm-up whose gradient was clipped; nan where there are too few.
        padding: share of the padded audio that is padding.
        settings: of the run, for the values of now.
    """

    def now(name: str) -> str:
        value = _setting(settings, name)
        return name if value is None else f"{name} (now {value})"

    waits = {
        "data": f"data wait is {shares.get('data', 0):.0%} of the time: raise {now('loader.workers')}.",
        "communication": f"communication is {shares.get('communication', 0):.0%} of the time: "
        f"raise {now('plan.step_seconds')}, or use fewer processes or a faster network between them.",
        "other": f"clipping and the optimiser are {shares.get('other', 0):.0%} of the time: "
        f"raise {now('plan.step_seconds')}, so that there are fewer steps.",
    }
    bounds = {"data": 0.05, "communication": 0.15, "other": 0.25}
    said = [
        waits[name]
        for name in sorted(waits, key=lambda name: -shares.get(name, 0.0))
        if shares.get(name, 0.0) >= bounds[name]
    ]
    if padding >= 0.05:
        said.append(
            f"padding is {padding:.0%} of what is computed: lower {now('plan.blur')} "
            f"or {now('plan.micro_batches')}, so that a micro-batch holds utterances of nearly one length."
        )
    if clipped >= 0.5:
        said.append(
            f"{clipped:.0%} of the steps after the warm-up are clipped: lower {now('optimizer.learning_rate.value')} "
            f"or raise {now('optimizer.clip')}."
        )
    if not said:
        said.append(f"nothing stands out: compute is {shares.get('compute', 0):.0%} of the time.")
    return said


def _setting(settings: Mapping[str, Any], name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = _mapping(value).get(part)
    return value


def _mean(values: Numbers) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def names(curves: Sequence[Curves]) -> list[str]:
    """A short name of each run: its folder's, with as many parents as tell them apart, numbered if nothing does."""
    paths = [one.run.resolve() for one in curves]
    for depth in range(1, 4):
        found = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(found)) == len(found):
            return found
    return [f"{path.name} ({number})" for number, path in enumerate(paths, 1)]
