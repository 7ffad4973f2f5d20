"""Hypotheses → error rates, and the folder that keeps both."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from allears.files import write_json, written
from allears.scoring.rates import RATES, UNITS, Count, Unit, count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from allears.evaluation.transcribe import Hypothesis

# Written without spaces between words, so that characters are what is counted.
UNSPACED = ("zh", "cmn", "yue", "ja", "th")


def rates(hypotheses: Sequence[Hypothesis], languages: Sequence[str] = ()) -> dict[str, Any]:
    """``wer``, ``cer`` and ``mer``, with the counts of the one that the language calls for as the headline."""
    totals = {unit: sum((count(pair.reference, pair.text, unit) for pair in hypotheses), Count()) for unit in UNITS}
    unspaced = languages and all(name.split("-")[0] in UNSPACED for name in languages)
    headline: Unit = "character" if unspaced else "word"
    chosen = totals[headline]
    return {
        **{RATES[unit]: totals[unit].rate for unit in UNITS},
        "headline": RATES[headline],
        "errors": chosen.errors,
        "units": chosen.units,
        "substitutions": chosen.substitutions,
        "insertions": chosen.insertions,
        "deletions": chosen.deletions,
        "utterances": len(hypotheses),
        "not_recognised": sum(bool(pair.problem) for pair in hypotheses),
        "normaliser": "training",
    }


def brief(hypotheses: Sequence[Hypothesis]) -> dict[str, float]:
    """The rates of a validation."""
    found = rates(hypotheses)
    return {name: found[name] for name in ("wer", "cer")}


def keep(folder: Path, result: dict[str, Any], hypotheses: Sequence[Hypothesis]) -> None:
    """Write ``result.json`` and ``hypotheses.jsonl`` to ``folder``."""
    with written(folder / "hypotheses.jsonl") as file:
        for pair in hypotheses:
            file.write((json.dumps(asdict(pair), ensure_ascii=False) + "\n").encode())
    write_json(folder / "result.json", result)
