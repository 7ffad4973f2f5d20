"""Who speaks: an accent times a voice variant of espeak-ng, with a pitch and a rate drawn per speaker.

A variant belongs to training or to test, never to both, and variants that differ in a line or two of their definition
(``Gene`` and ``Gene2``) stay on one side: a test speaker is a voice that training has not heard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from allears.seeding import generator, key

if TYPE_CHECKING:
    from allears.synthesis.grammar import Language, Split

ACCENTS: dict[Language, tuple[str, ...]] = {
    "en": ("en-us", "en-us-nyc", "en-gb-x-rp", "en-gb-scotland", "en-029"),
    # ``cmn`` reads characters itself (the same phonemes as pinyin through ``cmn-latn-pinyin``) and English words in
    # Latin letters with its English rules.
    "zh": ("cmn",),
    "mixed": ("cmn",),
}

# ``pedro`` is intelligible but trains: it stretches its syllables as no other variant does.
TEST_VARIANTS = (
    "Gene", "Gene2", "Reed", "aunty", "benjamin", "edward", "edward2", "f2", "f4", "grandpa", "linda", "m3", "m7",
    "victor",
)  # fmt: skip

TRAIN_VARIANTS = (
    "Alex", "Andrea", "Andy", "Annie", "Denis", "Diogo", "Henrique", "Hugo", "Jacky", "Mario", "Michael", "Mike",
    "Mr serious", "Nguyen", "Tweaky", "adam", "anika", "announcer", "antonio", "belinda", "boris", "caleb", "croak",
    "ed", "f1", "f3", "f5", "grandma", "gustave", "iven", "iven2", "iven3", "iven4", "john", "klatt", "klatt2",
    "klatt3", "klatt4", "klatt5", "klatt6", "m1", "m2", "m4", "m5", "m6", "m8", "max", "michel", "miguel", "mike2",
    "pablo", "paul", "pedro", "quincy", "rob", "robert", "sandro", "steph2", "steph3", "travis",
)  # fmt: skip

# Frames whose phoneme a small network named rightly (11 frames of 40 log-mel bands, two hidden layers, trained on the
# other variants, en-us, 14 sentences each; the plain voice reaches 95 %, the median variant 87 %, chance is 8 %).
# Variants under 75 % are left out. The list is fixed, so that a corpus depends on its seed alone.
UNINTELLIGIBLE = {
    "zac": 14, "Alicia": 30, "kaukovalta": 33, "Lee": 37, "Marco": 44, "Demonic": 46, "whisperf": 47, "shelby": 53,
    "whisper": 56, "ian": 57, "AnxiousAndy": 60, "UniRobot": 61, "norbert": 64, "RicishayMax2": 65,
    "RicishayMax3": 67, "robosoft": 71, "RicishayMax": 72, "david": 72, "marcelo": 73, "steph": 74,
}  # fmt: skip

OTHERS_LEFT_OUT = {
    "fast": "a test of extreme rates, otherwise the plain voice",
    "Storm": "names a language of its own, so it would speak English in a Mandarin corpus",
    "anikaRobot": "anika with an echo",
    **dict.fromkeys(("robosoft2", "robosoft3", "robosoft4", "robosoft5", "robosoft7"), "a monotonous robot"),
    **dict.fromkeys(("robosoft6", "robosoft8"), "a monotonous robot"),
}

VARIANTS: dict[Split, tuple[str, ...]] = {"train": TRAIN_VARIANTS, "test": TEST_VARIANTS}

PITCHES = (35, 65)
"""Pitch drawn per speaker on espeak's scale of 0–99; 50 leaves the variant as it is defined."""

RATES = (140, 175)
"""Rate drawn per speaker, in words per minute; espeak's own default is 175."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One synthetic person.

    Attributes:
        name: unique in a corpus.
        accent: a language of espeak-ng, such as ``en-gb-scotland``.
        variant: a voice variant of espeak-ng, such as ``f3``.
        pitch: 0–99, 50 is the variant's own.
        rate: words per minute.
        seed: for the noise in breath and roughness, 0 to 2^31 − 1.
    """

    name: str
    accent: str
    variant: str
    pitch: int
    rate: int
    seed: int

    @property
    def voice(self) -> str:
        """Accent and variant as espeak-ng names a voice."""
        return f"{self.accent}+{self.variant}" if self.variant else self.accent


def _speaker(split: Split, language: Language, number: int, variant: str, seed: int) -> Speaker:
    """Speaker ``number``, whose pitch and rate depend on the key (seed, split, number) alone."""
    draw = generator(seed, key(f"speaker {split}"), number)
    accents = ACCENTS[language]
    return Speaker(
        name=f"{split}-{number:04d}",
        accent=accents[draw.integers(len(accents))],
        variant=variant,
        pitch=int(draw.integers(PITCHES[0], PITCHES[1] + 1)),
        rate=int(draw.integers(RATES[0], RATES[1] + 1)),
        seed=int(draw.integers(2**31)),
    )


def speakers(split: Split, language: Language, count: int, seed: int) -> list[Speaker]:
    """``count`` speakers of a split; each variant is taken once before one is taken again."""
    variants = VARIANTS[split]
    order = generator(seed, key(f"variants {split}")).permutation(len(variants))
    return [_speaker(split, language, number, variants[order[number % len(variants)]], seed) for number in range(count)]
