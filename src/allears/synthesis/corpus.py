"""A synthetic corpus in a folder: ``audio/<id>.flac``, ``metadata.tsv``, and ``synthesis.json``, what it was made with.

1 plan: texts, speakers, silences, levels and noise of all utterances, drawn by key from the settings alone. 2 record:
any number of processes, in any order; a file that is there whole is not made again. 3 flush all to disk, then write
``metadata.tsv``. So killing it, running it again, or another number of processes gives the same bytes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import sys
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, get_args

from allears.errors import SettingsError, SynthesisError
from allears.files import PARTIAL, locked, read_json, write_json, written
from allears.reporting import Progress
from allears.seeding import generator, key, mixed
from allears.synthesis.espeak import MISSING
from allears.synthesis.grammar import Language, Split, sentence, units
from allears.synthesis.noise import KINDS
from allears.synthesis.pool import Pool
from allears.synthesis.recording import Order
from allears.synthesis.voices import TEST_VARIANTS, speakers
from allears.types import SAMPLE_RATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from allears.synthesis.voices import Speaker

FORMAT = 2
"""Raised whenever the same settings come to give other bytes."""

STAMP = "synthesis.json"
METADATA = "metadata.tsv"
COLUMNS = ("id", "audio", "speaker", "split", "duration_s", "text", "language", "accent", "variant", "noise", "snr_db")

SILENCES = (0.05, 0.2)
"""Seconds in front and behind, drawn per utterance; espeak itself leaves at most 0.05 s."""

LEVELS = (-30.0, -20.0)
"""Root mean square of the speech, drawn per utterance, in decibels of full scale."""

BANK_SENTENCES = 16
"""What babble is cut from: about half a minute."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a corpus is a function of.

    Attributes:
        hours: training audio, silences included; met within a few per cent, because texts are drawn before they are
            spoken.
        test: test utterances.
        speakers: training speakers; a quarter as many, but at least one for each test variant, speak the test.
        language: ``en``, ``zh`` or ``mixed`` (Mandarin with English words).
        noise: share of the utterances of each split that get noise, 0 to 1.
        train_snr_db: signal-to-noise ratio of noisy training utterances, drawn between these, in decibels.
        test_snr_db: the same for all noisy test utterances.
        seed: everything random hangs on it.
    """

    hours: float = 2.0
    test: int = 300
    speakers: int = 200
    language: Language = "en"
    noise: float = 0.5
    train_snr_db: tuple[float, float] = (10.0, 30.0)
    test_snr_db: float = 20.0
    seed: int = 0

    def __post_init__(self) -> None:
        least, most = self.train_snr_db
        rules = (
            ("hours", 0 < self.hours <= 10_000, "more than 0 and at most 10,000", "--hours 2"),
            ("test", self.test >= 0, "0 or more", "--test 300"),
            ("speakers", self.speakers >= 1, "at least 1", "--speakers 200"),
            ("language", self.language in get_args(Language), "en, zh or mixed", "--language en"),
            ("noise", 0 <= self.noise <= 1, "a share from 0 to 1", "--noise 0.5"),
            ("train_snr_db", least <= most, "two numbers, the smaller first", "train_snr_db=(10, 30)"),
            ("seed", self.seed >= 0, "0 or more", "--seed 0"),
        )
        for name, holds, rule, example in rules:
            if not holds:
                raise SettingsError(f"{name} must be {rule}, not {getattr(self, name)}; try {example}.")


@dataclass(frozen=True, slots=True)
class Summary:
    """What a corpus has: utterances of both splits, their hours, and how many voices speak."""

    utterances: int
    hours: float
    speakers: int


@dataclass(frozen=True, slots=True)
class _Planned:
    split: Split
    language: str
    order: Order


_SECONDS: dict[Language, tuple[float, float]] = {"en": (0.02, 0.0527), "zh": (-0.07, 0.2600), "mixed": (0.16, 0.2457)}
"""Seconds of speech at 175 words a minute: a constant, and more for each letter (en) or unit (zh, mixed). Fitted to
3,000 utterances; one deviates by 0.2 s, an hour by about 1 %."""


def estimated_seconds(text: str, language: Language, rate: int) -> float:
    """Seconds that ``text`` will last at ``rate`` words per minute, silences included."""
    constant, each = _SECONDS[language]
    length = len(text) if language == "en" else len(units(text))
    return sum(SILENCES) + (constant + each * length) * 175 / rate


def _texts(split: Split, settings: Settings, people: Sequence[Speaker]) -> Iterator[str]:
    """The split's texts in order: a number of them for test, as many as fill the hours for training."""
    seconds = 0.0
    for number in itertools.count():
        if number >= settings.test if split == "test" else seconds >= settings.hours * 3600:
            return
        text = sentence(settings.language, generator(settings.seed, key(f"text {split}"), number))
        seconds += estimated_seconds(text, settings.language, people[number % len(people)].rate)
        yield text


def _noisy(split: Split, count: int, settings: Settings) -> set[int]:
    """Which utterances of a split get noise: exactly the share that was asked for."""
    order = generator(settings.seed, key(f"noisy {split}")).permutation(count)
    return set(order[: round(settings.noise * count)].tolist())


def _order(split: Split, number: int, text: str, speaker: Speaker, noisy: bool, settings: Settings) -> Order:
    draw = generator(settings.seed, key(f"recording {split}"), number)
    level, before, after = draw.uniform(*LEVELS), draw.uniform(*SILENCES), draw.uniform(*SILENCES)
    kind = KINDS[draw.integers(len(KINDS))]
    ratio = settings.test_snr_db if split == "test" else round(draw.uniform(*settings.train_snr_db), 1)
    return Order(
        id=f"{split}-{number:06d}",
        text=text,
        speaker=speaker,
        level_db=level,
        before=before,
        after=after,
        noise=kind if noisy else "",
        snr_db=ratio if noisy else 0.0,
        seed=mixed(settings.seed, key(f"noise {split}"), number),
    )


def _tag(text: str, language: Language) -> str:
    """BCP 47; ``mul`` where English words stand in Mandarin."""
    if language == "en":
        return "en"
    return "mul" if any(unit.isascii() for unit in units(text)) else "zh"


def planned(split: Split, settings: Settings) -> list[_Planned]:
    """All utterances of a split, in the order of their ids."""
    count = settings.speakers if split == "train" else max(len(TEST_VARIANTS), settings.speakers // 4)
    people = speakers(split, settings.language, count, settings.seed)
    texts = list(_texts(split, settings, people))
    noisy = _noisy(split, len(texts), settings)
    return [
        _Planned(
            split,
            _tag(text, settings.language),
            _order(split, number, text, people[number % count], number in noisy, settings),
        )
        for number, text in enumerate(texts)
    ]


def _bank(settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    """Sentences that babble is cut from; their speakers are training variants."""
    people = speakers("train", settings.language, BANK_SENTENCES, mixed(settings.seed, key("babble")))
    draw = generator(settings.seed, key("babble texts"))
    return [(sentence(settings.language, draw), asdict(speaker)) for speaker in people]


def _stamp(settings: Settings) -> dict[str, Any]:
    """What the folder was made with, as JSON reads it back."""
    if importlib.util.find_spec("espeakng_loader") is None:
        raise SynthesisError(MISSING)
    values = asdict(settings) | {"train_snr_db": list(settings.train_snr_db)}
    return {"format": FORMAT, "espeakng_loader": version("espeakng-loader"), "settings": values}


def _claim(out: Path, settings: Settings) -> None:
    """Take ``out`` for these settings; refuse a folder with other settings or other content."""
    wanted = _stamp(settings)
    if not (out / STAMP).exists():
        others = [path.name for path in out.iterdir() if path.name != ".lock" and not path.name.endswith(PARTIAL)]
        if others:
            raise SynthesisError(
                f"{out} must be empty or a synthetic corpus, but it holds {min(others)!r}; choose another folder."
            )
        write_json(out / STAMP, wanted)
        return
    found = read_json(out / STAMP)
    if found != wanted:
        raise SynthesisError(
            f"{out} was made with other settings ({_difference(found, wanted)}); "
            "choose another folder, or delete this one first."
        )


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first thing that differs: ``seed 0, not 1``."""
    flat = [{**stamp, **stamp.get("settings", {})} for stamp in (found, wanted)]
    for name in ("format", "espeakng_loader", *(field.name for field in fields(Settings))):
        there, here = (stamp.get(name) for stamp in flat)
        if there != here:
            return f"{name} {there}, not {here}"
    return f"{STAMP} has fields that this version does not know"


def _row(item: _Planned, frames: int) -> str:
    order = item.order
    seconds = frames / SAMPLE_RATE
    ratio = f"{order.snr_db:g}" if order.noise else ""
    values = (
        order.id, f"audio/{order.id}.flac", order.speaker.name, item.split, str(seconds), order.text, item.language,
        order.speaker.accent, order.speaker.variant, order.noise, ratio,
    )  # fmt: skip
    return "\t".join(values) + "\n"


def _flush(folder: Path) -> None:
    """Flush the file system of ``folder`` to disk: once for all files, many times faster than each for itself."""
    if sys.platform != "linux":
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)


def _record(out: Path, plan: Sequence[_Planned], settings: Settings, processes: int) -> list[int]:
    """Make all files that are missing; how many samples each one has."""
    frames = [0] * len(plan)
    folder = str((out / "audio").resolve())
    messages = ({"record": asdict(item.order), "folder": folder} for item in plan)
    with Pool(min(processes, len(plan))) as pool, Progress("speaking", len(plan), "utterances") as progress:
        if any(item.order.noise == "babble" for item in plan):
            pool.tell({"bank": _bank(settings)})
        for place, count in pool.answers(messages):
            frames[place] = count
            progress.advance()
    return frames


def _finished(out: Path, plan: Sequence[_Planned]) -> list[int]:
    """How many samples each utterance has, where all are there and the table is written; else nothing."""
    if not (out / METADATA).exists():
        return []
    lines = (out / METADATA).read_text(encoding="utf-8").splitlines()[1:]
    if len(lines) != len(plan) or any(not (out / line.split("\t")[1]).exists() for line in lines):
        return []
    return [round(float(line.split("\t")[4]) * SAMPLE_RATE) for line in lines]


def _remove_partial(folder: Path) -> None:
    """Remove what killed processes left beside their places."""
    for path in folder.glob(f"*{PARTIAL}"):
        path.unlink(missing_ok=True)


def _completed(out: Path, plan: Sequence[_Planned], settings: Settings, processes: int) -> list[int]:
    """Make what is missing, flush it all, then write the table; how many samples each utterance has."""
    audio = out / "audio"
    audio.mkdir(exist_ok=True)
    _remove_partial(audio)
    frames = _record(out, plan, settings, processes)
    _remove_partial(audio)
    _flush(audio)
    with written(out / METADATA) as file:
        file.write("\t".join(COLUMNS).encode() + b"\n")
        file.writelines(_row(item, count).encode() for item, count in zip(plan, frames, strict=True))
    return frames


def synthesize(out: Path, settings: Settings | None = None, processes: int | None = None) -> Summary:
    """Fill ``out`` with a corpus; a folder that is partly filled is completed, one that is full is left as it is.

    Args:
        out: made if missing; must be empty, or of the same settings.
        settings: what the corpus is a function of.
        processes: how many speak at once; by default one for each core. The result does not depend on it.
    """
    settings = settings or Settings()
    processes = processes if processes is not None else len(os.sched_getaffinity(0))
    if processes < 1:
        raise SettingsError(f"processes must be at least 1, not {processes}; leave it out for one on each core.")
    if out.exists() and not out.is_dir():
        raise SynthesisError(f"{out} must be a folder, but it is a file; choose another place.")
    plan = [*planned("train", settings), *planned("test", settings)]
    with locked(out, "synthesising"):
        _claim(out, settings)
        frames = _finished(out, plan) or _completed(out, plan, settings, processes)
    voices = {item.order.speaker.name for item in plan}
    return Summary(len(plan), sum(frames) / SAMPLE_RATE / 3600, len(voices))
