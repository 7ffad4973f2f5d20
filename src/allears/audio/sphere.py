"""The header of a NIST SPHERE file: how much is promised and how it is packed, which libsndfile does not look at."""

from __future__ import annotations

from typing import BinaryIO, Final

from allears.audio.decode import UNREADABLE
from allears.errors import AudioError

_LARGEST: Final = 1 << 20
_PACKED: Final = ("shorten", "wavpack", "shortpack")


def promised(file: BinaryIO, name: str) -> int | None:
    """How many frames the header of ``file`` promises; None where it says nothing of it. Leaves it anywhere.

    Raises:
        AudioError: the samples are packed, as with shorten; ``name`` stands in it.
    """
    fields = header(file)
    coding = fields.get("sample_coding", "")
    for packing in _PACKED:
        if packing in coding.lower():
            raise AudioError(
                UNREADABLE,
                f"{name} is SPHERE packed with {packing} ({coding}), which is not read; unpack it, as with "
                "`sph2pipe -f wav`.",
            )
    count = fields.get("sample_count", "")
    return int(count) if count.isdecimal() else None


def header(file: BinaryIO) -> dict[str, str]:
    """The fields of the header: ``name -type value``, one a line, up to ``end_head``."""
    file.seek(0)
    lines = file.read(16).split(b"\n")
    size = int(lines[1]) if len(lines) > 1 and lines[1].strip().isdigit() else 1024
    file.seek(0)
    text = file.read(min(size, _LARGEST)).decode("latin-1").partition("\nend_head")[0]
    parts = (line.split(None, 2) for line in text.splitlines()[2:])
    return {part[0]: part[2].strip() for part in parts if len(part) == 3}
