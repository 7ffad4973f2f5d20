"""Faults planted in a clean dataset, one or more of each kind that a preflight finds in utterances."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile

from allears.manifest import manifest
from allears.manifest.index import Index
from allears.preflight import kinds
from allears.types import SAMPLE_RATE, Utterance
from proof.commands import PLACE, allears
from proof.rows import Measured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from allears.preflight.kinds import Kind

    Samples = NDArray[np.int16]

CONFIG = ("tiny", "tokenizer.kind=characters", "plan.step_seconds=96", "train.split=train")
"""A micro-batch holds 24 s."""
RUSSIAN = "поставьте будильник на семь часов утра"
LONG = "please remind me about the meeting with the director on the second of september"


@dataclass(frozen=True)
class Clip:
    """An utterance with its audio, as it is about to be written."""

    line: Utterance
    samples: Samples
    rate: int = SAMPLE_RATE

    def having(self, samples: NDArray[Any], rate: int = SAMPLE_RATE) -> Clip:
        """The same with other audio, floats rounded and clipped."""
        return replace(self, samples=np.clip(np.rint(samples), -32768, 32767).astype(np.int16), rate=rate)

    def saying(self, text: str) -> Clip:
        """The same with another transcript."""
        return replace(self, line=replace(self.line, text=text))


@dataclass(frozen=True)
class Plant:
    """A fault: its name, the kind under which it must be found, and how a clip comes to have it."""

    name: str
    kind: Kind
    made: Callable[[Clip, list[Clip]], Clip]


def _noise(count: int, deviation: float) -> NDArray[np.float64]:
    return np.random.default_rng(count).normal(0, deviation, count)


def _apart(clip: Clip, others: list[Clip]) -> Clip:
    """Two sentences, and a pause between them."""
    more = others[0]
    return clip.having(np.concatenate([clip.samples, _noise(40_000, 2), more.samples])).saying(
        f"{clip.line.text} {more.line.text}"
    )


def _at_8k(clip: Clip) -> NDArray[Any]:
    import soxr

    found: NDArray[Any] = soxr.resample(clip.samples.astype(np.float32), SAMPLE_RATE, 8000)
    return found


def _up_again(clip: Clip) -> NDArray[Any]:
    import soxr

    found: NDArray[Any] = soxr.resample(_at_8k(clip), 8000, SAMPLE_RATE)
    return found


def _in_noise(clip: Clip) -> NDArray[Any]:
    power = float(np.mean(clip.samples.astype(np.float64) ** 2))
    return clip.samples / 4 + _noise(len(clip.samples), (power * 10**0.3) ** 0.5 / 4)  # -3 dB


def _joined(clips: list[Clip], seconds: float) -> Clip:
    """Sentences one after another until they last ``seconds``."""
    taken = [clips[0]]
    while sum(len(one.samples) for one in taken) < seconds * SAMPLE_RATE:
        taken.append(clips[len(taken)])
    text = " ".join(one.line.text for one in taken)
    return clips[0].having(np.concatenate([one.samples for one in taken])).saying(text)


def _with_letters(clip: Clip, text: str) -> Clip:
    """``text`` with as much audio as it needs, from one voice slowed down or repeated."""
    samples = np.resize(clip.samples, round(len(clip.samples) * len(text) / len(clip.line.text)))
    return clip.having(samples).saying(text)


TRAIN = (
    Plant("hiss", kinds.SILENT, lambda c, _: c.having(_noise(len(c.samples), 1))),
    Plant("tail", kinds.MOSTLY_SILENT, lambda c, _: c.having(np.concatenate([c.samples, 0 * c.samples, [3]]))),
    Plant("pause", kinds.PAUSE, _apart),
    Plant("overdriven", kinds.CLIPPED, lambda c, _: c.having(c.samples * (300_000 / np.abs(c.samples).max()))),
    Plant("limited", kinds.CLIPPED, lambda c, _: c.having(np.clip(c.samples * 8.0, -9000, 9000))),
    Plant("offset", kinds.OFFSET, lambda c, _: c.having(c.samples / 2 + 3000.0)),
    Plant("noise", kinds.NOISY, lambda c, _: c.having(_in_noise(c))),
    Plant("at-8k", kinds.NARROW, lambda c, _: c.having(_at_8k(c), 8000)),
    Plant("up-from-8k", kinds.NARROW, lambda c, _: c.having(_up_again(c))),
    Plant("wordy", kinds.FAST, lambda c, _: c.saying(" ".join([c.line.text] * 4))),
    Plant("curt", kinds.SLOW, lambda c, more: _joined([c, *more], 8).saying("stop")),
    Plant("dots", kinds.NO_LETTERS, lambda c, _: c.saying("... - ?!")),
    Plant("no-tokens", kinds.NO_TOKENS, lambda c, _: c.saying("[noise]")),
    Plant("latin-1", kinds.DAMAGED_TEXT, lambda c, _: c.saying(f"cafÃ© {c.line.text}")),
    Plant("entity", kinds.DAMAGED_TEXT, lambda c, _: c.saying(f"{c.line.text} &amp; go")),
    Plant("look-alike", kinds.TWO_SCRIPTS, lambda c, _: c.saying(c.line.text.replace("e", "е", 1))),  # a Cyrillic е
    Plant("russian", kinds.OTHER_SCRIPT, lambda c, _: _with_letters(c, RUSSIAN)),
    Plant("chinese", kinds.UNKNOWN, lambda c, _: _with_letters(c, "打开卧室窗户并关灯")),
    Plant("sharp-s", kinds.RARE, lambda c, _: c.saying(f"{c.line.text} ß")),
    Plant("thorn", kinds.STRANGE, lambda c, _: c.saying(f"{c.line.text} þ")),
    Plant("twin", kinds.SAME_AUDIO, lambda c, more: replace(c, samples=more[0].samples).saying(more[0].line.text)),
    *(Plant(f"again-{n}", kinds.REPEATED, lambda c, _: _with_letters(c, LONG)) for n in range(5)),
    Plant("blink", kinds.TOO_SHORT, lambda c, _: c.having(c.samples[4000:8000]).saying("to")),
    Plant("speech", kinds.TOO_LONG, lambda c, more: _joined([c, *more], 31)),
    Plant("lecture", kinds.UNPLANNED, lambda c, more: _joined([c, *more], 25)),
    Plant("cut-off", kinds.NOT_ALIGNED, lambda c, _: c.having(c.samples[4000:12000]).saying(c.line.text * 2)),
)
"""Planted in utterances that are trained on, before the dataset is prepared; more come from `TEST` and `spoil`."""
TEST = (
    Plant("leak", kinds.SHARED_AUDIO, lambda c, more: replace(c, samples=more[0].samples).saying(more[0].line.text)),
    Plant(
        "known-voice",
        kinds.SHARED_SPEAKER,
        lambda c, more: replace(c, line=replace(c.line, speaker=more[0].line.speaker)),
    ),
    Plant("known-text", kinds.SHARED_TEXT, lambda c, more: _with_letters(c, max((m.line.text for m in more), key=len))),
)
"""Planted in test utterances; the others are those that are trained on."""


def measure_faults() -> Measured:
    """Line 7: the real commands on a clean dataset and on the same with faults."""
    place = PLACE / "faults"
    clips = clean(place / "spoken")
    nothing = found_in(prepared(clips, place / "clean"), place / "clean-report")
    spoilt, planted = plant(clips)
    dataset = prepared(spoilt, place / "spoilt")
    planted = planted | spoil(dataset, set(planted))
    found = found_in(dataset, place / "spoilt-report")
    missed = [f"{name} ({kind.name})" for name, kind in planted.items() if kind.name not in found.get(name, [])]
    wrong = [name for name in found if name not in planted]
    names = {kind.name for kind in planted.values()}
    shards = sum(kind is kinds.BAD_SHARD for kind in planted.values())
    faults = len(planted) - shards + 1
    return Measured(
        f"{faults} faults of {len(names)} kinds in {len(planted)} of {len(spoilt)} utterances (one is a shard): "
        f"{'all found by name' if not missed else f'missed {missed}'}; found in utterances without one: "
        f"{wrong or 'nothing'}; in the clean dataset of {len(clips)}: {nothing or 'nothing'}",
        not missed and not wrong and not nothing and faults >= 25,
    )


def clean(folder: Path) -> list[Clip]:
    """Synthetic speech without noise; sentences that stand twice are left out."""
    allears("synthesize", folder, "--hours", 0.3, "--test", 40, "--speakers", 24, "--noise", 0)
    lines = (folder / "metadata.tsv").read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    clips: dict[str, Clip] = {}
    for line in lines[1:]:
        row = dict(zip(header, line.split("\t"), strict=True))
        samples, rate = soundfile.read(folder / row["audio"], dtype="int16")
        one = Utterance(row["id"], "", row["text"], 0.0, None, row["speaker"], row["language"], row["split"])
        clips.setdefault(one.text, Clip(one, samples, rate))
    return list(clips.values())


def plant(clips: list[Clip]) -> tuple[list[Clip], dict[str, Kind]]:
    """The clips with the faults of `TRAIN` and `TEST`, and which utterance has which."""
    trained = [one for one in clips if one.line.split == "train"]
    tested = [one for one in clips if one.line.split == "test"]
    whole = [trained[1], *trained[100:]]  # stay as they are; the first stands before most faults
    planted: dict[str, Kind] = {}
    for side, plants in ((trained, TRAIN), (tested, TEST)):
        for place, one in enumerate(plants):
            made = one.made(side[3 * place], whole)
            name = f"{one.name}-{made.line.id}"
            side[3 * place] = replace(made, line=replace(made.line, id=name))
            planted[name] = one.kind
    return [*trained, *tested], planted


def prepared(clips: list[Clip], folder: Path) -> Path:
    """The dataset of the clips."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "corpus" / "audio").mkdir(parents=True)
    lines = []
    for one in clips:
        audio = f"audio/{one.line.id}.flac"
        soundfile.write(folder / "corpus" / audio, one.samples, one.rate)
        lines.append(replace(one.line, audio=audio))
    manifest.write(folder / "corpus" / manifest.NAME, lines)
    said = allears("prepare", folder / "corpus", folder / "dataset", "--encoding", "flac")
    assert said["rejected"] == 0, said
    return folder / "dataset"


def spoil(dataset: Path, taken: set[str]) -> dict[str, Kind]:
    """Damage files of a prepared dataset: shards, and lines of its manifest; which utterance then has which fault."""
    index = Index.open(dataset)
    whole = [
        row for row in range(len(index)) if index.id(row) not in taken and index.shard[row] < len(index.shards) - 1
    ]
    flipped, longer, other = whole[10], whole[20], whole[30]
    last = np.flatnonzero(index.shard == len(index.shards) - 1).tolist()
    planted = {index.id(row): kinds.BAD_SHARD for row in last if index.id(row) not in taken}
    with (dataset / index.shards[int(index.shard[flipped])].name).open("r+b") as file:
        position = int(index.offset[flipped] + index.size[flipped] // 2)
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 16]))
    cut = dataset / index.shards[-1].name
    with cut.open("r+b") as file:
        file.truncate(cut.stat().st_size - 1000)
    lines = (dataset / manifest.NAME).read_text(encoding="utf-8").splitlines(keepends=True)
    lines[longer] = json.dumps(json.loads(lines[longer]) | {"duration": 4.5}) + "\n"
    lines[other] = json.dumps(json.loads(lines[other]) | {"text": "this is not what was said"}) + "\n"
    (dataset / manifest.NAME).write_text("".join(lines), encoding="utf-8")
    ours = ((flipped, kinds.UNREADABLE), (longer, kinds.DURATION), (other, kinds.STALE))
    return planted | {index.id(row): kind for row, kind in ours}


def found_in(dataset: Path, out: Path) -> dict[str, list[str]]:
    """What the real command finds: utterance → kinds; the dataset as a whole stands under an empty name."""
    shutil.rmtree(out, ignore_errors=True)
    allears("validate", dataset, *CONFIG, "--out", out)
    lines = map(json.loads, (out / "problems.jsonl").read_text(encoding="utf-8").splitlines())
    found = {line["id"]: line["kinds"] for line in lines}
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    whole = [one["kind"] for one in report["findings"] if "detail" in one]
    return found | ({"": whole} if whole else {})
