"""Where a preflight draws its lines; each default says why it stands there."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from allears.settings import Settings


class PreflightSettings(Settings):
    """Thresholds of ``allears validate``, changed as in ``preflight.pause_seconds=3``.

    Levels are root mean squares in decibels of full scale (dBFS), of frames of 20 ms without their mean.

    Attributes:
        silence_level: a frame below it is silent: -60 dBFS is below the noise of a quiet room in a good recording.
        silence_below: so is one this many decibels below the loud frames (95th percentile) of its utterance: what is
            left of a sentence at -40 dB is neither speech nor breath.
        silent_share: utterances of which a greater share is silent are mostly silent.
        pause_seconds: a longer silent stretch is a long pause: speakers breathe sooner.
        clipped_share: samples at full scale, or flat at the utterance's own extreme; one in a thousand is heard.
        offset: mean of the samples, as a share of full scale. Measured: a thousandth or less in most recordings, a
            hundredth where vowels are lopsided, 26 hundredths in a sentence of LibriSpeech.
        noisy: estimated signal-to-noise ratio in decibels below which an utterance is noisy. The estimate reads about
            6 dB too high (measured, white noise), so 8 means noise nearly as strong as the speech.
        noise_seconds: shorter utterances have no pause in which noise could be measured, and are not judged.
        narrow_hertz: an utterance without anything above this frequency was recorded at 8 kHz, or for a telephone.
        duration_seconds: how far a manifest's duration may be from the truth: corpora round to hundredths.
        speech_rate: an utterance's letters per second may be this many times the median of its language and script, or
            a fraction of it.
        speech_rate_deviations: and must be this many deviations (from the median absolute one, of the logarithm) away:
            isolated words are spoken at any rate.
        least_utterances: of a language and script for its median to be trusted, and of a dataset for rare characters.
        rare_utterances: a letter beyond ASCII that so few utterances hold, or fewer, is rare.
        long_letters: what a transcript must have to be called long (Chinese characters and kana count three times);
            short ones, such as commands, repeat by nature.
        repeated: a long transcript that stands this many times is repeated.
        step_variation: standard deviation over mean of the number of utterances in a step; above it, gradients of one
            step are much noisier than those of the next.
        short_median: median duration in seconds below which ``normalisation: utterance`` hurts: in a word nearly all
            frames are speech, and its mean takes the word's own colour away.
    """

    silence_level: float = Field(default=-60.0, ge=-100, le=0)
    silence_below: PositiveFloat = 40.0
    silent_share: float = Field(default=0.5, ge=0, le=1)
    pause_seconds: PositiveFloat = 2.0
    clipped_share: float = Field(default=0.001, gt=0, le=1)
    offset: float = Field(default=0.02, gt=0, le=1)
    noisy: float = 8.0
    noise_seconds: PositiveFloat = 1.0
    narrow_hertz: PositiveFloat = 4500.0
    duration_seconds: PositiveFloat = 0.02
    speech_rate: float = Field(default=2.5, gt=1)
    speech_rate_deviations: PositiveFloat = 5.0
    least_utterances: PositiveInt = 50
    rare_utterances: PositiveInt = 2
    long_letters: PositiveInt = 40
    repeated: int = Field(default=5, ge=2)
    step_variation: PositiveFloat = 0.2
    short_median: PositiveFloat = 1.5
