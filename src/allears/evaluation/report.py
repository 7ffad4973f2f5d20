"""A result as a person reads it: rates, the speakers at both ends, the worst utterances under their references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allears.reporting import counted, say, show, table
from allears.scoring.align import aligned
from allears.scoring.rates import RATES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allears.scoring.rates import Unit

FEW_SPEAKERS = 3
"""How many of the worst and of the best speakers are shown."""
_COUNTS = ("errors", "units", "substitutions", "insertions", "deletions")
_NAMES: dict[str, Unit] = {name: unit for unit, name in RATES.items()}


def tell(result: Mapping[str, Any]) -> None:
    """Print what `allears.evaluation.result.summary` found, and where it is kept."""
    over = f"{result['bootstrap']['level']:.0%} by {result['bootstrap']['over']}"
    table(
        f"{result['name']}: {counted(result['utterances'], 'utterance')}, {result['checkpoint']} of {result['run']}, "
        f"normaliser {result['normaliser']}",
        ["", "rate", over, "errors", "units", "sub", "ins", "del"],
        [
            [f"{name} ←" if name == result["headline"] else name, f"{one['rate']:.2%}", _interval(one["interval"])]
            + [f"{one[key]:,}" for key in _COUNTS]
            for name, one in result["rates"].items()
        ],
    )
    if result["not_recognised"]:
        gone = counted(result["not_recognised"], "utterance")
        show(f"{gone} could not be read: there nothing heard is what counts.")
    if result["empty_references"]:
        empty = counted(result["empty_references"], "utterance")
        show(f"{empty} without a reference: what is heard there counts as inserted.")
    if len(result["speakers"]) > 1:
        _tell_speakers(result["speakers"], result["headline"])
    for one in result["worst"]:
        _tell_utterance(one, _NAMES[result["headline"]])
    say(f"the result is in {result['folder']}")


def _interval(ends: list[float] | None) -> str:
    return f"{ends[0]:.2%}–{ends[1]:.2%}" if ends else "–"


def _tell_speakers(speakers: Mapping[str, Mapping[str, float]], headline: str) -> None:
    rows = [
        [name or "(unknown)", f"{one['rate']:.2%}", *(f"{one[key]:,}" for key in ("errors", "units", "utterances"))]
        for name, one in speakers.items()
    ]
    if len(rows) > 2 * FEW_SPEAKERS:
        rows[FEW_SPEAKERS:-FEW_SPEAKERS] = [["…", "", "", "", ""]]
    table(f"{len(speakers):,} speakers, worst to best", ["", headline, "errors", "units", "utterances"], rows)


def _tell_utterance(one: Mapping[str, Any], unit: Unit) -> None:
    who = f" ({one['speaker']})" if one["speaker"] else ""
    show(f"{one['id']}{who}: {counted(one['errors'], 'error')} in {one['units']}, confidence {one['confidence']:.2f}")
    if one["problem"]:
        show(f"  {one['problem']}")
    for said, heard, marks in aligned(one["reference"], one["text"], unit):
        show(f"  said   {said}\n  heard  {heard}\n         {marks}")
