"""Randomness by key: what is drawn depends on (seed, epoch, utterance, purpose) and on nothing else.

No generator is shared or advanced, so the same utterance sounds the same on any rank, in any worker, after any
restart. Bulk draws hash 64-bit words with the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(name: str) -> int:
    """A 64-bit key for a name (an utterance id, a purpose), the same on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _finalise(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser, elementwise and in place: every output bit depends on every input bit."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def hashed(keys: NDArray[np.uint64], *context: int) -> NDArray[np.uint64]:
    """One well-mixed word for each of ``keys`` [n] under ``context`` (seed, epoch, purpose …), in that order."""
    state = np.zeros(1, dtype=np.uint64)
    for word in context:
        state = _finalise(state + _GOLDEN + np.uint64(word & 0xFFFFFFFFFFFFFFFF))
    words = _finalise(keys + _GOLDEN)
    words ^= state
    return _finalise(words)


def uniform(keys: NDArray[np.uint64], *context: int) -> NDArray[np.float64]:
    """Uniform draws in [0, 1) for each of ``keys`` [n] under ``context``."""
    return (hashed(keys, *context) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mixed(*words: int) -> int:
    """One 63-bit seed from several integers, well mixed in its low 32 bits (all that torch's CPU generator keeps)."""
    return int(hashed(np.zeros(1, dtype=np.uint64), *words)[0] >> np.uint64(1))


def generator(*words: int) -> np.random.Generator:
    """A generator of its own for one utterance's draws, keyed by ``words``."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([w & 0xFFFFFFFFFFFFFFFF for w in words])))
