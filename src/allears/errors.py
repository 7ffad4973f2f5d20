"""The error tree. Each message is one sentence: the field or file, the rule, the value found, the remedy.

AllearsError                anything that is the input's or the environment's fault
├── SettingsError           a config or an option
├── DataError               what was read
│   ├── CorpusError         a corpus as it came
│   ├── DatasetError        a prepared dataset: manifest, index, shards
│   └── AudioError          one file or segment of audio; rejects an utterance, ends nothing
├── PlanError               utterances, micro-batches and processes that do not fit together
├── CheckpointError         a checkpoint that is missing, incomplete or of another model
├── TrainingError           a training that cannot go on
└── SynthesisError          the speech synthesiser
"""

from __future__ import annotations

import errno
import resource


class AllearsError(Exception):
    """Base of all errors that a user can mend; the command line prints it as one sentence.

    Where a process has met its limit of open files, that is the sentence: nothing is wrong with the file it came to.
    """

    def __str__(self) -> str:
        return too_many_files(self) or super().__str__()


def too_many_files(error: BaseException) -> str | None:
    """What to say where ``error`` comes of the limit of open files; None where it does not."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno == errno.EMFILE):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may have {most} files open at a time and needs more; raise the limit, as with "
        f"`ulimit -n {max(1024, 2 * most)}`, and give the same command again."
    )


class SettingsError(AllearsError):
    """A config, an override or an option is wrong."""


class DataError(AllearsError):
    """Something that was read is wrong."""


class CorpusError(DataError):
    """A corpus cannot be read at all."""


class DatasetError(DataError):
    """A prepared dataset is missing, incomplete, damaged or of another version."""


class AudioError(DataError):
    """The audio of one utterance cannot be used; ``reason`` is a short fixed phrase for counting."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class PlanError(AllearsError):
    """Utterances, micro-batches and processes do not fit together."""


class CheckpointError(AllearsError):
    """A checkpoint is missing, incomplete or belongs to another model."""


class TrainingError(AllearsError):
    """A training cannot go on."""


class SynthesisError(AllearsError):
    """The speech synthesiser is missing or failed."""
