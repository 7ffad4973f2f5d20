"""``report.html``: one file that needs nothing else: summary, histograms, and the worst utterances to listen to.

Audio lies in it as FLAC in data URLs; how much is bounded, so that the page stays small whatever was found.
"""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Final

from allears import files
from allears.audio.decode import decode, encode
from allears.errors import AudioError, DatasetError
from allears.preflight.charts import Histogram, drawn, waveform
from allears.reporting import counted
from allears.shards.read import ShardReader
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from pathlib import Path

    from allears.preflight.findings import Finding
    from allears.preflight.report import Report

NAME: Final = "report.html"
PLAYED: Final = 3
"""Utterances of a kind that can be played."""
PLAYED_SECONDS: Final = 10
"""Of each, from its start."""
PLAYED_BYTES: Final = 12_000_000
"""Of the whole page."""


def write(report: Report, folder: Path) -> None:
    """Write the page to ``folder``, complete or absent.

    Raises:
        DataError: it cannot be written.
    """
    player = _Player(ShardReader(report.survey.index))
    sections = "".join(_section(report, finding, player) for finding in report.findings)
    name = escape(report.survey.index.folder.resolve().name)
    page = (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Preflight of {name}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>Preflight of {name}</h1>{_head(report)}{_summary(report)}"
        f"<h2>What is in it</h2><div class='charts'>{''.join(map(drawn, charts(report)))}</div>"
        f"{sections}</main></body></html>\n"
    )
    with files.written(folder / NAME) as file:
        file.write(page.encode())


def charts(report: Report) -> list[Histogram]:
    """The histograms of a dataset."""
    survey, settings = report.survey, report.settings
    at = survey.readable
    columns = survey.columns[at]
    seconds = survey.seconds[at]
    spoken = columns["letters"] > 0
    return [
        Histogram("Duration", "seconds", seconds),
        Histogram("Speech rate", "letters a second", columns["letters"][spoken] / seconds[spoken]),
        Histogram("Level", "dBFS, root mean square", columns["level"]),
        Histogram("Signal to noise", "dB, estimated", columns["snr"], [(settings.noisy, "noisy")]),
        Histogram("Silence", "per cent", columns["silent"] * 100, [(settings.silent_share * 100, "mostly silent")]),
        Histogram("Bandwidth", "Hz", columns["bandwidth"], [(settings.narrow_hertz, "narrow")]),
    ]


class _Player:
    """Utterances as players, as long as there is room."""

    def __init__(self, reader: ShardReader) -> None:
        self._reader = reader
        self._room = PLAYED_BYTES

    def player(self, row: int) -> str:
        """The start of an utterance, drawn and playable; a sentence where it cannot be."""
        try:
            samples = decode(self._reader.segment(row))[: PLAYED_SECONDS * SAMPLE_RATE]
        except (AudioError, DatasetError):
            return "<span class='none'>cannot be played</span>"
        if len(samples) == 0:
            return "<span class='none'>nothing to play</span>"
        data = base64.b64encode(encode(samples, "flac")).decode()
        if len(data) > self._room:
            return f"{waveform(samples)}<span class='none'>left out: the page is full</span>"
        self._room -= len(data)
        return f"{waveform(samples)}<audio controls preload='none' src='data:audio/flac;base64,{data}'></audio>"


def _head(report: Report) -> str:
    survey = report.survey
    rates = report.prepared.get("source_rates", {})
    facts = [
        counted(report.utterances, "utterance"),
        f"{survey.seconds.sum() / 3600:,.2f} hours",
        counted(len([name for name in survey.index.speakers if name]), "speaker"),
        f"shards of {survey.index.encoding}",
        *([f"recorded at {', '.join(f'{rate} Hz ({count:,})' for rate, count in rates.items())}"] if rates else []),
        *([f"looked at for {report.config}"] if report.config else []),
    ]
    return f"<p class='facts'>{escape(' · '.join(facts))}</p>"


def _summary(report: Report) -> str:
    if not report.findings:
        return "<p class='well'>Nothing was found.</p>"
    rows = "".join(
        f"<tr><td><a href='#{_anchor(one)}'>{escape(one.kind.name)}</a></td>"
        f"<td><span class='{one.kind.gravity}'>{one.kind.gravity}</span></td>"
        f"<td class='number'>{f'{len(one.rows):,}' if len(one.rows) else 'the dataset'}</td>"
        f"<td class='number'>{f'{len(one.rows) / report.utterances:.2%}' if len(one.rows) else ''}</td></tr>"
        for one in report.findings
    )
    return (
        "<table><thead><tr><th>problem</th><th>gravity</th><th class='number'>utterances</th>"
        f"<th class='number'>share</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _anchor(finding: Finding) -> str:
    return finding.kind.name.replace(" ", "-")


def _section(report: Report, finding: Finding, player: _Player) -> str:
    kind, index = finding.kind, report.survey.index
    shown = "".join(
        f"<li><div class='said'><code>{escape(index.id(row))}</code> {escape(finding.words(place).rstrip('.'))}"
        f"<blockquote>{escape(_brief(index.text(row), 300))}</blockquote></div>"
        f"<div class='heard'>{player.player(row)}</div></li>"
        for place, row in enumerate(finding.rows[:PLAYED].tolist())
    )
    more = _more(report.examples(finding)[PLAYED:])
    return (
        f"<section id='{_anchor(finding)}'>"
        f"<h2>{escape(kind.name)} <span class='{kind.gravity}'>{kind.gravity}</span></h2>"
        f"<p>{escape(_capital(kind.told(report.settings)))}. <b>Remedy:</b> {escape(kind.remedy)}.</p>"
        + (f"<p>{escape(_capital(finding.whole.rstrip('.')))}.</p>" if finding.whole else "")
        + (f"<ul class='worst'>{shown}</ul>" if shown else "")
        + (f"<p class='more'>Then: {more}</p>" if more else "")
        + "</section>"
    )


def _more(examples: list[dict[str, str]]) -> str:
    """Ids with what is to be said of each, unless it is what was said of the one before."""
    parts, before = [], ""
    for one in examples:
        said = "" if one["detail"] == before else f" {escape(_brief(one['detail']))}"
        parts.append(f"<code>{escape(one['id'])}</code>{said}")
        before = one["detail"]
    return "; ".join(parts)


def _brief(text: str, most: int = 80) -> str:
    """The start of a text, without a full stop at its end."""
    return text.rstrip(".") if len(text) <= most else f"{text[:most].rstrip()}…"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2733;--pale:#5c6b7a;--paper:#fff;--line:#dde3e9;--bar:#0072b2;--fault:#b3261e;
--warning:#8a5a00;--card:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--pale:#9fb0c0;--paper:#14191f;--line:#2c3640;--bar:#56b4e9;
--fault:#ff8a80;--warning:#f0c05a;--card:#1b222a}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:960px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:34px 0 8px}
.facts,.more,.spread,.none,figcaption{color:var(--pale)}.more{font-size:13px;overflow-wrap:anywhere}
.well{font-size:18px}table{border-collapse:collapse;width:100%;margin:16px 0}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid var(--line)}.number{text-align:right}
a{color:inherit}code{font-size:13px;overflow-wrap:anywhere}
.fault,.warning{font-size:12px;font-weight:600;border:1px solid;border-radius:9px;padding:1px 8px;vertical-align:middle}
.fault{color:var(--fault)}.warning{color:var(--warning)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(280px,1fr));gap:14px}
figure{margin:0;padding:12px 14px;background:var(--card);border-radius:8px}.spread{font-size:12px;margin:2px 0 0}
svg{width:100%;height:auto;display:block}rect{fill:var(--bar)}.axis{stroke:var(--pale);fill:none}
svg text{fill:var(--pale);font-size:11px;text-anchor:middle}path.mark{stroke:var(--fault);stroke-dasharray:3 3}
svg text.mark{fill:var(--fault)}svg text.start{text-anchor:start}svg text.end{text-anchor:end}
.worst{list-style:none;padding:0;margin:0}.worst li{display:flex;flex-wrap:wrap;gap:10px 18px;padding:10px 0;
border-top:1px solid var(--line)}.said{flex:1 1 320px;min-width:0;overflow-wrap:anywhere}.heard{flex:0 0 300px}
blockquote{margin:2px 0 0;color:var(--pale)}audio{width:100%;height:36px}
.wave{height:36px;margin-bottom:4px}.wave path{stroke:var(--bar);stroke-width:1.4;fill:none}
""".replace("\n", "")
