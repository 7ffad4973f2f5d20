"""The manifest: one JSON line an utterance, ``id audio start duration text speaker language split``, then the rest.

Its order is the corpus's order, and its bytes are a function of the utterances alone.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from allears import files
from allears.errors import DatasetError
from allears.types import Rejection, Utterance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

NAME: Final = "manifest.jsonl"
REJECTED: Final = "rejected.jsonl"
FIELDS: Final = ("id", "audio", "start", "duration", "text", "speaker", "language", "split")


def line(utterance: Utterance) -> bytes:
    """One line of a manifest with its newline; fields of ``extra`` follow in the corpus's order."""
    record = {name: getattr(utterance, name) for name in FIELDS}
    record |= {name: value for name, value in utterance.extra.items() if name not in FIELDS}
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def write(path: Path, utterances: Iterable[Utterance]) -> None:
    """Write a manifest, complete or absent."""
    with files.written(path) as file:
        file.writelines(line(utterance) for utterance in utterances)


def read(path: Path) -> Iterator[Utterance]:
    """The utterances of a dataset's manifest, one after the other.

    Raises:
        DatasetError: the file is missing, or one of its lines is wrong; the message has its number.
    """
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, start=1):
                try:
                    yield utterance(record(data.decode()))
                except ValueError as error:
                    raise DatasetError(f"{path}, line {number}: {error}; mend it or prepare again.") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.") from error


def write_rejected(path: Path, rejections: Iterable[Rejection]) -> None:
    """Write what was rejected, one JSON line ``id reason detail`` each, complete or absent."""
    with files.written(path) as file:
        for one in rejections:
            record = {"id": one.id, "reason": one.reason, "detail": one.detail}
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def record(text: str) -> dict[str, Any]:
    """The JSON object of one line; a ValueError says why it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__} where an object is needed")
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is no character") from error
    return found


def utterance(fields: Mapping[str, Any]) -> Utterance:
    """The utterance that one record of a manifest describes; a ValueError names the field that is wrong."""
    return Utterance(
        id=required(fields, "id"),
        audio=required(fields, "audio"),
        text=string(fields, "text"),
        start=seconds(fields, "start") or 0.0,
        duration=seconds(fields, "duration"),
        speaker=string(fields, "speaker"),
        language=string(fields, "language"),
        split=string(fields, "split"),
        extra={name: value for name, value in fields.items() if name not in FIELDS},
    )


def required(fields: Mapping[str, Any], name: str) -> str:
    """A field that must be there and not be empty."""
    value = string(fields, name)
    if not value.strip():
        raise ValueError(f"the field {name!r} is missing or empty")
    return value


def string(fields: Mapping[str, Any], name: str) -> str:
    """A field of text; absent and null are the empty string, a number (of a speaker, say) is its digits."""
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"the field {name!r} must be text and is {value!r}")
    return str(value)


def seconds(fields: Mapping[str, Any], name: str) -> float | None:
    """A field of seconds; absent, null and the empty string are None."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"the field {name!r} must be a number of seconds and is {value!r}")
    return found
