"""Broken and odd files, each with what must become of it: the right samples, or a rejection with its true reason.

All hold the same second of sound, `SOUND`: a tone that climbs through the speech band. Builders give a file's bytes.
"""

from __future__ import annotations

import importlib.util
import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RATE = 16_000


def sound(rate: int = RATE, seconds: float = 1.0) -> NDArray[np.int16]:
    """Samples [n]."""
    time = np.arange(round(rate * seconds)) / rate
    tone = np.sin(2 * np.pi * (200 * time + 600 * time**2)) * (0.3 + 0.1 * np.sin(40 * time))
    return np.rint(tone * 32_767).astype(np.int16)


SOUND = sound()
JUNK = np.random.default_rng(7).integers(0, 256, 4000, dtype=np.uint8).tobytes()


@dataclass(frozen=True)
class Right:
    """The file is read: within ``step`` of each sample, or, through a lossy codec, alike.

    Attributes:
        step: the largest difference in steps of int16.
        like: the least correlation over the middle half; then lengths may differ by ``longer`` samples.
        delay: by how many samples the sound may come late or early.
        longer: how many samples more or less there may be.
        wanted: the samples; None for `SOUND`.
    """

    step: int = 0
    like: float | None = None
    delay: int = 0
    longer: int = 0
    wanted: NDArray[np.int16] | None = None


@dataclass(frozen=True)
class Wrong:
    """The file is rejected, for ``reason``, and the sentence has ``words``."""

    reason: str
    words: str


@dataclass(frozen=True)
class Odd:
    """A kind of file."""

    name: str
    build: Callable[[], bytes]
    outcome: Right | Wrong
    needs_av: bool = False


def written(form: str, subtype: str, samples: NDArray[Any] = SOUND, rate: int = RATE) -> bytes:
    """Bytes of a file that libsndfile writes."""
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=form, subtype=subtype)
    return stream.getvalue()


def wav(subtype: str = "PCM_16", samples: NDArray[Any] = SOUND, rate: int = RATE, form: str = "WAV") -> bytes:
    return written(form, subtype, samples, rate)


def flac(samples: NDArray[Any] = SOUND, subtype: str = "PCM_16") -> bytes:
    return written("FLAC", subtype, samples)


def mp3(samples: NDArray[np.int16] = SOUND, rate: int = RATE) -> bytes:
    """Bytes of an MP3; libsndfile spoils int16 of two channels."""
    return written("MP3", "MPEG_LAYER_III", samples / 32_768, rate)


def vorbis() -> bytes:
    return written("OGG", "VORBIS")


def opus() -> bytes:
    return written("OGG", "OPUS")


def floats(factor: float) -> NDArray[np.float32]:
    """`SOUND` as floats, with ±1 at 32,768, times ``factor``."""
    return SOUND.astype(np.float32) / np.float32(32_768) * np.float32(factor)


def put(data: bytes, mark: bytes, offset: int, there: bytes) -> bytes:
    """``data`` with ``there`` at ``offset`` behind the start of ``mark``."""
    place = data.index(mark) + offset
    return data[:place] + there + data[place + len(there) :]


def spoiled(data: bytes, size: int = 200, at: float = 0.5) -> bytes:
    """``data`` with ``size`` bytes of junk in it."""
    place = round(len(data) * at)
    return data[:place] + JUNK[:size] + data[place + size :]


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def fmt(offset: int, value: int, data: bytes | None = None) -> bytes:
    """A wav with two bytes of its format changed."""
    return put(data or wav(), b"fmt ", 8 + offset, struct.pack("<H", value))


def length(value: int, data: bytes | None = None) -> bytes:
    """A wav that says it has so many bytes of samples."""
    return put(data or wav(), b"data", 4, struct.pack("<I", value))


def sphere(data: bytes, size: int = 1024, **fields: str) -> bytes:
    """A NIST SPHERE file; an empty field is left out."""
    there = {
        "database_id": "-s5 TIMIT",
        "channel_count": "-i 1",
        "sample_count": f"-i {len(SOUND)}",
        "sample_rate": f"-i {RATE}",
        "sample_n_bytes": "-i 2",
        "sample_byte_format": "-s2 01",
        "sample_coding": "-s3 pcm",
        "sample_sig_bits": "-i 16",
    } | fields
    lines = "".join(f"{name} {value}\n" for name, value in there.items() if value)
    return f"NIST_1A\n{size:7d}\n{lines}end_head\n".encode().ljust(size) + data


def raw(subtype: str) -> bytes:
    return written("RAW", subtype)


def sphere_of_bytes(subtype: str, coding: str) -> bytes:
    """A SPHERE file with a byte for each sample."""
    how = {"sample_n_bytes": "-i 1", "sample_byte_format": "-s1 1", "sample_sig_bits": "-i 8"}
    return sphere(raw(subtype), 1024, sample_coding=coding, **how)


def id3(size: int) -> bytes:
    """An ID3v2 tag with a picture of ``size`` bytes."""
    return b"ID3\x03\x00\x00" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0)) + JUNK[:1] * size


def without_xing() -> bytes:
    """An MP3 without the frame that tells how many there are."""
    data = mp3()
    return data[data.index(data[:2], 4) :]


def flac_of_unknown_length() -> bytes:
    data = bytearray(flac())
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0, 0])
    return bytes(data)


SAMPLES = {
    "aac": "fltp",
    "alac": "s16p",
    "flac": "s16",
    "libmp3lame": "s16p",
    "libopencore_amrnb": "s16",
    "libopus": "s16",
    "wavpack": "s16p",
}
"""Samples as PyAV's encoders take them."""


def encoded(form: str, codec: str, rate: int, layout: str = "mono", video: bool = False, **options: str) -> bytes:
    """Bytes of a file that PyAV writes, of a second of `sound`."""
    import av

    stream = io.BytesIO()
    container: Any = av.open(stream, "w", format=form, options=options)
    with container:
        if video:
            picture = container.add_stream("mpeg4", rate=10)
            picture.width = picture.height = 32
        out = container.add_stream(codec, rate=rate, layout=layout) if codec else None
        if out is not None:
            out.codec_context.format = SAMPLES[codec]
        if video:
            for _ in range(10):
                container.mux(picture.encode(av.VideoFrame(32, 32, "yuv420p")))
            container.mux(picture.encode(None))
        if out is not None:
            samples = sound(rate)
            frame: Any = av.AudioFrame.from_ndarray(samples[None].copy(), format="s16", layout="mono")
            frame.sample_rate, frame.pts = rate, 0
            resampler = av.AudioResampler(format=SAMPLES[codec], layout=layout, rate=rate)
            for part in resampler.resample(frame) + resampler.resample(None):
                container.mux(out.encode(part))
            container.mux(out.encode(None))
    return stream.getvalue()


def stereo(other: NDArray[np.int16]) -> NDArray[np.int16]:
    return np.stack([SOUND, other], axis=1)


def caf(subtype: str) -> bytes:
    return written("CAF", subtype)


def infinite() -> NDArray[np.float32]:
    """Two channels whose mean is no number."""
    return np.tile(np.array([[np.inf, -np.inf]], dtype=np.float32), (RATE, 1))


def array_of_8() -> NDArray[np.int16]:
    """Three microphones that hear the same, and five that are dead, one of them at a constant voltage."""
    dead = np.zeros_like(SOUND)
    return np.stack([dead, SOUND, dead, dead + 500, SOUND, SOUND, dead, dead], axis=1)


BAD = "unreadable"
LOSSY = Right(like=0.99, longer=400)

ODD = [
    # samples of every kind in a wav
    Odd("wav-16", wav, Right()),
    Odd("wav-8", lambda: wav("PCM_U8"), Right(step=256)),
    Odd("wav-24", lambda: wav("PCM_24"), Right()),
    Odd("wav-32", lambda: wav("PCM_32"), Right()),
    Odd("wav-float", lambda: wav("FLOAT", floats(1)), Right()),
    Odd("wav-double", lambda: wav("DOUBLE", floats(1)), Right()),
    Odd(
        "wav-float-above-1",
        lambda: wav("FLOAT", floats(4)),
        Right(wanted=np.clip(4 * SOUND.astype(np.int32), -32_768, 32_767).astype(np.int16)),
    ),
    Odd("wav-float-of-int16", lambda: wav("FLOAT", floats(32_768)), Wrong(BAD, "by 32768")),
    Odd("wav-float-nan", lambda: wav("FLOAT", floats(np.nan)), Wrong(BAD, "not finite")),
    Odd("wav-float-infinite-stereo", lambda: wav("FLOAT", infinite()), Wrong(BAD, "not finite")),
    Odd("wav-mu-law", lambda: wav("ULAW"), Right(step=512)),
    Odd("wav-a-law", lambda: wav("ALAW"), Right(step=512)),
    Odd("wav-ima-adpcm", lambda: wav("IMA_ADPCM"), LOSSY),
    Odd("wav-ms-adpcm", lambda: wav("MS_ADPCM"), LOSSY),
    Odd("wav-gsm", lambda: wav("GSM610"), Right(like=0.9, longer=400)),
    Odd("wav-mp3-inside", lambda: encoded("wav", "libmp3lame", RATE), Right(like=0.99, delay=1200, longer=1600), True),
    Odd(
        "wav-mp3-inside-without-sound",
        lambda: fmt(0, 0x55, wav(samples=0 * SOUND)),
        Wrong(BAD, "no MP3 frames"),
    ),
    # its header
    Odd("wav-length-0", lambda: length(0), Right()),
    Odd("wav-length-all-ones", lambda: length(0xFFFFFFFF), Right()),
    Odd("wav-length-all-ones-riff-too", lambda: put(length(0xFFFFFFFF), b"RIFF", 4, b"\xff" * 4), Right()),
    Odd("wav-length-of-sox-in-a-pipe", lambda: length(0x7FFFF000), Right()),
    Odd("wav-riff-length-wrong", lambda: put(wav(), b"RIFF", 4, b"\x10\0\0\0"), Right()),
    Odd("wav-extensible", lambda: wav(form="WAVEX"), Right()),
    Odd("wav-extensible-24", lambda: wav("PCM_24", form="WAVEX"), Right()),
    Odd("wav-rf64", lambda: wav(form="RF64"), Right()),
    Odd("wav-w64", lambda: wav(form="W64"), Right()),
    Odd("wav-list-first", lambda: wav()[:36] + b"LIST\x06\0\0\0INFOab" + wav()[36:], Right()),
    Odd("wav-block-align-0", lambda: fmt(12, 0), Right()),
    Odd("wav-called-mp3", wav, Right()),
    Odd("wav-no-channels", lambda: fmt(2, 0), Wrong(BAD, "Channel count is zero")),
    Odd("wav-rate-5", lambda: wav(rate=5), Wrong(BAD, "5 samples a second")),
    Odd("wav-unknown-code", lambda: fmt(0, 0x1234), Wrong(BAD, "fmt")),
    Odd("wav-cut", lambda: half(wav()), Wrong(BAD, "cut off: 0.50 of 1.00 s")),
    Odd("wav-cut-in-header", lambda: wav()[:30], Wrong(BAD, "data")),
    Odd("wav-header-only", lambda: wav()[:44], Wrong("empty", "no samples")),
    Odd("wav-no-samples", lambda: wav(samples=SOUND[:0]), Wrong("empty", "no samples")),
    Odd("wav-silent", lambda: wav(samples=0 * SOUND), Wrong("digitally silent", "all samples are 0")),
    Odd("wav-two-in-one", lambda: wav() + wav(), Wrong(BAD, f"another wav file begins in it, at byte {len(wav())}")),
    # rates and channels
    *(
        Odd(f"rate-{rate}", lambda rate=rate: wav(samples=sound(rate), rate=rate), Right(like=0.9999, longer=1))  # type: ignore[misc]
        for rate in (8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 12_345)
    ),
    Odd("stereo-other-dead", lambda: wav(samples=stereo(0 * SOUND)), Right()),
    Odd("stereo-other-constant", lambda: wav(samples=stereo(0 * SOUND - 900)), Right()),
    Odd("stereo-cancels", lambda: wav(samples=stereo(-SOUND)), Wrong("digitally silent", "channels cancel")),
    Odd("eight-with-five-dead", lambda: wav(samples=array_of_8(), form="WAVEX"), Right()),
    # SPHERE
    Odd("sphere", lambda: sphere(SOUND.astype("<i2").tobytes()), Right()),
    Odd("sphere-big-endian", lambda: sphere(SOUND.astype(">i2").tobytes(), sample_byte_format="-s2 10"), Right()),
    Odd("sphere-mu-law", lambda: sphere_of_bytes("ULAW", "-s4 ulaw"), Right(step=512)),
    Odd("sphere-a-law", lambda: sphere_of_bytes("ALAW", "-s4 alaw"), Right(step=512)),
    Odd("sphere-long-header", lambda: sphere(SOUND.astype("<i2").tobytes(), size=4096), Right()),
    Odd("sphere-without-coding", lambda: sphere(SOUND.astype("<i2").tobytes(), sample_coding=""), Right()),
    Odd("sphere-without-count", lambda: sphere(SOUND.astype("<i2").tobytes(), sample_count=""), Right()),
    Odd("sphere-cut", lambda: sphere(half(SOUND.astype("<i2").tobytes())), Wrong(BAD, "cut off: 0.50 of 1.00 s")),
    Odd(
        "sphere-shorten",
        lambda: sphere(b"ajkg\x02" + JUNK, sample_coding="-s26 pcm,embedded-shorten-v2.00"),
        Wrong(BAD, "packed with shorten"),
    ),
    Odd("shorten", lambda: b"ajkg\x02" + JUNK, Wrong(BAD, "shorten")),
    Odd("sphere-no-header", lambda: b"NIST_1A\n   1024\nnothing\n", Wrong(BAD, "header")),
    # what else libsndfile reads
    Odd("aiff", lambda: written("AIFF", "PCM_16"), Right()),
    Odd("aiff-cut", lambda: half(written("AIFF", "PCM_16")), Wrong(BAD, "cut off: 0.50 of 1.00 s")),
    Odd("au", lambda: written("AU", "PCM_16"), Right()),
    Odd("au-cut", lambda: half(written("AU", "PCM_16")), Wrong(BAD, "cut off: 0.50 of 1.00 s")),
    Odd("au-without-length", lambda: put(written("AU", "PCM_16"), b".snd", 8, b"\xff" * 4), Right()),
    Odd("caf-alac", lambda: caf("ALAC_16"), Right()),
    Odd("voc", lambda: written("VOC", "PCM_16"), Right()),
    Odd("rf64-cut", lambda: half(wav(form="RF64")), Wrong(BAD, "cut off: 0.50 of 1.00 s")),
    Odd("w64-cut", lambda: half(wav(form="W64")), Wrong(BAD, "cut off: 0.50 of 1.00 s")),
    # FLAC
    Odd("flac", flac, Right()),
    Odd("flac-24", lambda: flac(subtype="PCM_24"), Right()),
    Odd("flac-behind-id3", lambda: id3(5000) + flac(), Right()),
    Odd("flac-without-length", flac_of_unknown_length, Right()),
    Odd("flac-without-length-behind-id3", lambda: id3(700) + flac_of_unknown_length(), Right()),
    Odd("flac-without-length-cut-in-header", lambda: flac_of_unknown_length()[:44], Wrong(BAD, "FLAC header")),
    Odd("flac-cut", lambda: half(flac()), Wrong(BAD, "FLAC frames are broken or cut off")),
    Odd("flac-spoiled", lambda: spoiled(flac()), Wrong(BAD, "FLAC")),
    Odd("flac-one-bit", lambda: spoiled(flac(), 1), Wrong(BAD, "FLAC")),
    # Ogg
    Odd("vorbis", vorbis, LOSSY),
    Odd("opus", opus, LOSSY),
    Odd("vorbis-cut", lambda: half(vorbis()), Wrong(BAD, "cut off in its Ogg page")),
    Odd("vorbis-spoiled", lambda: spoiled(vorbis()), Wrong(BAD, "Ogg page")),
    Odd("opus-one-byte", lambda: spoiled(opus(), 1), Wrong(BAD, "checksum of its Ogg page")),
    # MP3
    Odd("mp3", mp3, LOSSY),
    Odd("mp3-44100-stereo", lambda: mp3(np.stack([sound(44_100)] * 2, axis=1), 44_100), LOSSY),
    Odd("mp3-id3v2", lambda: id3(600) + mp3(), LOSSY),
    Odd("mp3-id3v2-with-a-picture", lambda: id3(300_000) + mp3(), LOSSY),
    Odd("mp3-id3v1", lambda: mp3() + b"TAG" + bytes(125), LOSSY),
    Odd("mp3-junk-before", lambda: JUNK[:777] + mp3(), LOSSY),
    Odd("mp3-zeros-before", lambda: bytes(5000) + mp3(), LOSSY),
    Odd("mp3-junk-behind", lambda: mp3() + JUNK, LOSSY),
    Odd("mp3-without-xing", without_xing, Right(like=0.99, delay=1200, longer=1600)),
    Odd("mp3-cut", lambda: half(mp3()), Wrong(BAD, "cut off: 0.")),
    Odd("mp3-spoiled", lambda: spoiled(mp3(), 300), Wrong(BAD, "no MP3 frame from byte")),
    Odd("mp3-broken-id3v2", lambda: id3(600)[:6] + b"\xff" * 4 + id3(600)[10:] + mp3(), LOSSY),
    Odd("mp3-two-in-one", lambda: mp3() + mp3(), Wrong(BAD, "another stream")),
    # by PyAV
    Odd("m4a", lambda: encoded("ipod", "aac", 44_100), Right(like=0.99, longer=1100), True),
    Odd("m4a-alac", lambda: encoded("ipod", "alac", RATE), Right(step=1), True),
    Odd("mp4-stereo", lambda: encoded("mp4", "aac", 48_000, "stereo"), Right(like=0.99, longer=1100), True),
    Odd("mp4-with-pictures", lambda: encoded("mp4", "aac", RATE, video=True), Right(like=0.99, longer=1100), True),
    Odd("webm-opus", lambda: encoded("webm", "libopus", 48_000), LOSSY, True),
    Odd("mka-flac", lambda: encoded("matroska", "flac", RATE), Right(), True),
    Odd("amr", lambda: encoded("amr", "libopencore_amrnb", 8_000), Right(like=0.7, delay=120, longer=400), True),
    Odd("3gp-amr", lambda: encoded("3gp", "libopencore_amrnb", 8_000), Right(like=0.7, delay=120, longer=400), True),
    Odd("aac", lambda: encoded("adts", "aac", RATE), Right(like=0.99, delay=1024, longer=2048), True),
    Odd("wavpack", lambda: encoded("wv", "wavpack", RATE), Right(step=1), True),
    Odd("caf-without-length", lambda: put(caf("PCM_16"), b"data", 4, b"\xff" * 8), Right(), True),
    Odd(
        "caf-chunk-past-all-files",
        lambda: put(caf("ALAC_16"), b"pakt", 0, b"\x7f" * 8),
        Wrong(BAD, "malformed"),
        True,
    ),
    Odd("m4a-cut", lambda: half(encoded("ipod", "aac", RATE)), Wrong(BAD, "is not MP4"), True),
    Odd("m4a-spoiled", lambda: spoiled(encoded("ipod", "aac", RATE), at=0.4), Wrong(BAD, "damaged"), True),
    Odd("webm-cut", lambda: half(encoded("webm", "libopus", 48_000)), Wrong(BAD, "cut off"), True),
    Odd("amr-spoiled", lambda: spoiled(encoded("amr", "libopencore_amrnb", 8_000)), Wrong(BAD, "damaged"), True),
    Odd("mp4-without-sound", lambda: encoded("mp4", "", RATE, video=True), Wrong(BAD, "no sound (video)"), True),
    # no audio at all
    Odd("nothing", lambda: b"", Wrong("empty", "0 bytes")),
    Odd("zeros", lambda: bytes(40_000), Wrong(BAD, "nothing but zeros")),
    Odd("junk", lambda: JUNK, Wrong(BAD, "Format not recognised")),
    Odd("web-page", lambda: b"<!DOCTYPE html><html><body>404 Not Found</body></html>", Wrong(BAD, "a web page")),
    Odd("json", lambda: b'{"error": "quota exceeded"}\n', Wrong(BAD, "it is text")),
    Odd("git-lfs-pointer", lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0", Wrong(BAD, "Git LFS")),
    Odd("gzip", lambda: b"\x1f\x8b\x08" + JUNK, Wrong(BAD, "gzip archive")),
    Odd("picture", lambda: b"\x89PNG\r\n\x1a\n" + JUNK, Wrong(BAD, "a picture")),
    Odd("playlist", lambda: b"#EXTM3U\n#EXTINF:1,\nother.wav\n", Wrong(BAD, "it is text")),
]
"""The table."""

HAS_AV = importlib.util.find_spec("av") is not None
