"""Hypotheses → error rates, and the folder that keeps both."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from allears.errors import SettingsError
from allears.files import write_json, written
from allears.scoring.bootstrap import LEVEL, RESAMPLES, Bootstrap
from allears.scoring.headline import headline
from allears.scoring.normalise import normaliser
from allears.scoring.rates import RATES, UNITS, Count, Unit, count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from allears.evaluation.transcribe import Hypothesis

NORMALISER = "basic"
WORST = 5


@dataclass(frozen=True, slots=True)
class Scored:
    """A hypothesis with what was compared (normalised ``reference`` and ``text``) and the errors in each unit."""

    hypothesis: Hypothesis
    reference: str
    text: str
    counts: dict[Unit, Count]


def scored(hypotheses: Sequence[Hypothesis], normalise: str = NORMALISER) -> list[Scored]:
    """Count the errors of each hypothesis, after the scoring normaliser of that name.

    Raises:
        SettingsError: there is no such normaliser.
    """
    change = normaliser(normalise)
    pairs = [(one, change(one.reference), change(one.text)) for one in hypotheses]
    return [Scored(one, said, heard, {unit: count(said, heard, unit) for unit in UNITS}) for one, said, heard in pairs]


def rates(hypotheses: Sequence[Hypothesis], languages: Sequence[str] = ()) -> dict[str, Any]:
    """`summary` of hypotheses, with the usual normaliser."""
    return summary(scored(hypotheses), languages)


def brief(hypotheses: Sequence[Hypothesis], languages: Sequence[str] = ()) -> tuple[dict[str, float], str]:
    """The rates of a validation, ``wer``, ``cer`` and ``mer``, and which of them is the headline."""
    found = scored(hypotheses)
    unit = headline((one.reference for one in found), languages)
    return {RATES[unit]: _total(found, unit).rate for unit in UNITS}, RATES[unit]


def summary(
    found: Sequence[Scored], languages: Sequence[str] = (), normalise: str = NORMALISER, worst: int = WORST
) -> dict[str, Any]:
    """What ``result.json`` holds: all rates, and at the top the counts of the headline.

    An utterance without a reference is counted: whatever is heard in it is inserted.

    Args:
        found: the utterances, scored.
        languages: theirs, as BCP 47 tags.
        normalise: name of the normaliser they were scored with.
        worst: how many utterances to tell of, those with most errors first.
    """
    unit = headline((one.reference for one in found), languages)
    bootstrap = Bootstrap([one.hypothesis.speaker for one in found])
    details = {
        RATES[kind]: {
            "rate": _total(found, kind).rate,
            **_counted(_total(found, kind)),
            "interval": bootstrap.interval([one.counts[kind] for one in found]),
        }
        for kind in UNITS
    }
    chosen = details[RATES[unit]]
    return {
        **{name: detail["rate"] for name, detail in details.items()},
        "headline": RATES[unit],
        **{name: value for name, value in chosen.items() if name != "rate"},
        "utterances": len(found),
        "not_recognised": sum(bool(one.hypothesis.problem) for one in found),
        "empty_references": sum(not one.reference for one in found),
        "normaliser": normalise,
        "languages": list(languages),
        "bootstrap": {"level": LEVEL, "resamples": RESAMPLES, "over": bootstrap.over},
        "rates": details,
        "speakers": _speakers(found, unit),
        "worst": _worst(found, unit, worst),
    }


def _total(found: Sequence[Scored], unit: Unit) -> Count:
    return sum((one.counts[unit] for one in found), Count())


def _counted(one: Count) -> dict[str, int]:
    counts = asdict(one)
    return {"errors": one.errors, **counts}


def _speakers(found: Sequence[Scored], unit: Unit) -> dict[str, dict[str, float]]:
    """Errors of each speaker, the worst first; nothing where no speaker is known."""
    counts: dict[str, Count] = {}
    utterances: dict[str, int] = {}
    for one in found:
        name = one.hypothesis.speaker
        counts[name] = counts.get(name, Count()) + one.counts[unit]
        utterances[name] = utterances.get(name, 0) + 1
    if not any(counts):
        return {}
    return {
        name: {"rate": total.rate, "errors": total.errors, "units": total.units, "utterances": utterances[name]}
        for name, total in sorted(counts.items(), key=lambda pair: (-pair[1].rate, pair[0]))
    }


def _worst(found: Sequence[Scored], unit: Unit, most: int) -> list[dict[str, Any]]:
    """The utterances with most errors; of equal ones the shorter first."""
    ranked = sorted(found, key=lambda one: (-one.counts[unit].errors, one.counts[unit].units))
    return [
        {
            "id": one.hypothesis.id,
            "speaker": one.hypothesis.speaker,
            "reference": one.reference,
            "text": one.text,
            "confidence": round(one.hypothesis.confidence, 4),
            "problem": one.hypothesis.problem,
            **_counted(one.counts[unit]),
        }
        for one in ranked[:most]
        if one.counts[unit].errors
    ]


def place(run: Path, name: str, out: Path | None) -> Path:
    """The folder for a result: ``out``, else ``evaluation/name`` in the run that ``run`` is or is a checkpoint of.

    Raises:
        SettingsError: ``name`` is no plain name, the checkpoint lies in no run, or the folder in a checkpoint, which
            holds nothing but itself.
    """
    if not name or name in {".", ".."} or "/" in name:
        raise SettingsError(f"--name must be a plain name such as test, not {name!r}; use --out for another folder.")
    run = run.absolute()
    if out is None and is_checkpoint(run):
        above = [folder for folder in run.parents[:2] if (folder / "checkpoints").is_dir()]
        if not above:
            raise SettingsError(f"{run} is a checkpoint outside a run; name a folder for the result with --out.")
        run = above[0]
    folder = out.absolute() if out is not None else run / "evaluation" / name
    for parent in (folder, *folder.parents):
        if is_checkpoint(parent):
            raise SettingsError(f"--out {out} lies in the checkpoint {parent}; name a folder outside it.")
    return folder


def is_checkpoint(folder: Path) -> bool:
    """Whether ``folder`` is a checkpoint (or an average of some)."""
    return (folder / "state.json").exists()


def keep(folder: Path, result: dict[str, Any], found: Sequence[Scored]) -> None:
    """Write ``result.json`` and ``hypotheses.jsonl`` to ``folder``."""
    with written(folder / "hypotheses.jsonl") as file:
        for one in found:
            counts = {RATES[unit]: _counted(total) for unit, total in one.counts.items()}
            line = {**asdict(one.hypothesis), "confidence": round(one.hypothesis.confidence, 4), "counts": counts}
            file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
    write_json(folder / "result.json", result)
