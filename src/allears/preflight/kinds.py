"""The kinds of problem that a preflight finds: name, gravity, rule, and what to do. docs/validate.md lists the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from allears.preflight.settings import PreflightSettings

Gravity = Literal["fault", "warning"]
"""A fault stops a training, is left out of it, or makes its result wrong; a warning makes it worse or slower."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem.

    Attributes:
        name: as in reports.
        gravity: fault or warning.
        rule: what is looked for, in words; settings stand in it by name, as in ``{pause_seconds:g}``.
        remedy: what to do.
    """

    name: str
    gravity: Gravity
    rule: str
    remedy: str

    def told(self, settings: PreflightSettings) -> str:
        """The rule with its thresholds."""
        return self.rule.format(**settings.model_dump())


_AGAIN = "restore the file, or prepare the dataset again with --overwrite"
_LEAVE = "leave these utterances out of the corpus and prepare it again"
_LISTEN = "listen to some; " + _LEAVE + " if they are no use"


_all: list[Kind] = []


def _fault(name: str, rule: str, remedy: str) -> Kind:
    _all.append(Kind(name, "fault", rule, remedy))
    return _all[-1]


def _warning(name: str, rule: str, remedy: str) -> Kind:
    _all.append(Kind(name, "warning", rule, remedy))
    return _all[-1]


BAD_SHARD: Final = _fault(
    "damaged shard", "the shard is missing, cut short, or has other bytes than were written", _AGAIN
)
UNREADABLE: Final = _fault("unreadable", "the audio does not decode, or not to the samples that were encoded", _AGAIN)
DURATION: Final = _fault(
    "wrong duration",
    "the audio is not as long as the index says, or not within {duration_seconds:g} s of what the manifest says",
    "prepare the dataset again with --overwrite: plans trust these lengths",
)
STALE: Final = _fault(
    "manifest differs",
    "the manifest says another id or text than the index, which is what is trained on",
    "give the right texts to allears prepare --texts, or prepare the dataset again with --overwrite",
)
SILENT: Final = _fault("silent", "no frame of 20 ms is above {silence_level:g} dBFS", _LEAVE)
NO_LETTERS: Final = _fault("no letters", "nothing is left of the transcript once it is normalised", _LEAVE)
SHARED_AUDIO: Final = _fault(
    "audio in train and test", "the same samples are trained on and tested on", "take them out of one of the two"
)
MOSTLY_SILENT: Final = _warning(
    "mostly silent",
    "more than {silent_share:.0%} is below {silence_level:g} dBFS or {silence_below:g} dB below its loud frames",
    "cut the silence off, or check that the transcript is all there",
)
PAUSE: Final = _warning(
    "long pause", "silent for more than {pause_seconds:g} s without a break", "cut the utterance there"
)
CLIPPED: Final = _warning(
    "clipped", "more than {clipped_share:.1%} of the samples are at full scale or flat at the extreme", _LISTEN
)
OFFSET: Final = _warning(
    "DC offset",
    "the mean of the samples is more than {offset:.1%} of full scale",
    "subtract the mean from the recordings (or use a high-pass filter), and prepare again",
)
NOISY: Final = _warning("noisy", "the estimated signal-to-noise ratio is below {noisy:g} dB", _LISTEN)
NARROW: Final = _warning(
    "narrow band",
    "nothing above {narrow_hertz:g} Hz, as of 8 kHz or telephone recordings, among others that have it",
    "find the originals, or know that the model will learn both; testing on both apart shows whether it does",
)
FAST: Final = _warning(
    "too many letters",
    "more than {speech_rate:g} × the letters per second that its language has in the median",
    "compare audio and transcript: text of another utterance, or audio that was cut off",
)
SLOW: Final = _warning(
    "too few letters",
    "less than 1/{speech_rate:g} of the letters per second that its language has in the median",
    "compare audio and transcript: words are missing from the text, or the audio has more in it",
)
DAMAGED_TEXT: Final = _warning(
    "damaged text",
    "the transcript holds control characters, HTML entities, U+FFFD, or UTF-8 that was read as Latin-1",
    "mend the encoding of the transcripts; allears prepare --texts puts them in place",
)
TWO_SCRIPTS: Final = _warning(
    "two scripts in a word",
    "a word has letters of two alphabets",
    "write the word in one: letters that look alike differ",
)
OTHER_SCRIPT: Final = _warning(
    "another script",
    "the transcript is in another script than 95 % of its language",
    "check language and transcript of these utterances",
)
RARE: Final = _warning(
    "rare letters",
    "a letter beyond ASCII that {rare_utterances} utterances or fewer hold",
    "normalise these letters (allears prepare --texts changes transcripts), or be content that they are not learnt",
)
SAME_AUDIO: Final = _warning("same audio", "the same samples as another utterance", "take all but one out")
REPEATED: Final = _warning(
    "repeated text",
    "a transcript of {long_letters} letters or more that {repeated} utterances or more have",
    "if it was not read so often, mend the transcripts; else know that the model may learn it by heart",
)
SHARED_SPEAKER: Final = _warning(
    "speaker in train and test",
    "a test utterance by a speaker who is trained on",
    "split by speaker, or know that error rates for new speakers will be higher",
)
SHARED_TEXT: Final = _warning(
    "text in train and test",
    "a test utterance with a transcript of {long_letters} letters or more that is trained on",
    "take them out of one of the two, or know that the test rewards memory",
)
ALL_NARROW: Final = _warning(
    "all narrow band",
    "nothing in the dataset is above {narrow_hertz:g} Hz",
    "nothing is wrong if it is for the telephone; else find the originals",
)
TOO_SHORT: Final = _fault(
    "shorter than the plan allows", "shorter than plan.min_seconds", "lower it, or be content: these are not trained on"
)
TOO_LONG: Final = _fault(
    "longer than the plan allows", "longer than plan.max_seconds", "cut them, or raise it: these are not trained on"
)
UNPLANNED: Final = _fault(
    "no micro-batch holds it",
    "longer than a micro-batch (plan.step_seconds over plan.micro_batches), at the slowest speed",
    "raise plan.step_seconds or lower plan.micro_batches; these are not trained on",
)
NO_TOKENS: Final = _fault("no tokens", "no token is left of the transcript", _LEAVE)
UNKNOWN: Final = _fault(
    "mostly unknown",
    "more of the tokens than tokenizer.most_unknown allows are unknown",
    "use a tokenizer made from texts like these",
)
NOT_ALIGNED: Final = _fault(
    "CTC cannot align",
    "more tokens (and a blank between equal ones) than the model has frames, at the fastest speed",
    "use a tokenizer of longer tokens, or less subsampling; check the transcripts: these are not trained on",
)
STRANGE: Final = _warning(
    "unknown characters",
    "characters that have no token of their own",
    "normalise them, or use a tokenizer made from texts like these",
)
UNEVEN: Final = _warning(
    "uneven steps",
    "the number of utterances in a step varies by more than {step_variation:.0%} (deviation over mean)",
    "raise plan.step_seconds, or plan.micro_batches",
)
SHORT_NORMALISED: Final = _warning(
    "short utterances normalised one by one",
    "model.features.normalisation is utterance, and the median utterance is under {short_median:g} s",
    "use normalisation: global",
)
KINDS: Final = tuple(sorted(_all, key=lambda one: one.gravity))
"""All kinds, faults first, each as they stand here: the order of reports."""
