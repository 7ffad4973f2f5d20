"""One utterance: read, decoded, tokenised, its augmentation drawn; keyed by (seed, epoch, utterance) alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from allears import seeding
from allears.audio.decode import UNREADABLE, decode
from allears.errors import AudioError
from allears.layers.augment import draw_bands
from allears.loading.augment import AugmentSettings
from allears.shards.read import ShardReader
from allears.types import Example

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allears.layers.augment import SpecAugmentSettings
    from allears.loading.collection import Collection
    from allears.text.tokenizer import Tokenizer

_NO_BANDS = np.zeros((0, 2), dtype=np.float32)


class ExampleReader:
    """Makes `Example`s of a collection; safe to use from several threads.

    Args:
        collection: the utterances.
        tokenizer: makes their tokens.
        seed: of the run.
        spec_augment: bands to draw; none draws none.
        augment: how the audio is changed; none leaves it.
    """

    def __init__(
        self,
        collection: Collection,
        tokenizer: Tokenizer,
        seed: int,
        spec_augment: SpecAugmentSettings | None,
        augment: AugmentSettings | None = None,
    ) -> None:
        self._collection = collection
        self._tokenizer = tokenizer
        self._seed = seed
        self._spec_augment = spec_augment
        self._augmentation = (augment or AugmentSettings()).build(seed)
        self._readers = [ShardReader(index) for index, _ in collection.parts]

    def example(self, utterance: int, epoch: int, into: NDArray[np.int16] | None = None) -> Example:
        """The utterance as it sounds in ``epoch``.

        Args:
            utterance: its number in the collection.
            epoch: from 0.
            into: where its waveform is to lie, as long as it is planned to be; none for an array of its own.

        Raises:
            AudioError: its audio cannot be used.
            DatasetError: its shard cannot be read.
        """
        part, row = self._collection.place(utterance)
        index, _ = self._collection.parts[part]
        key = int(index.keys[row])
        waveform = self._waveform(part, row, key, epoch, into)
        return Example(utterance, waveform, self._tokenizer.encode(index.text(row)), *self._bands(key, epoch))

    def _bands(self, key: int, epoch: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Bands of frequencies and of times [masks, 2] that are hidden."""
        bands = self._spec_augment
        if bands is None:
            return _NO_BANDS, _NO_BANDS
        generator = seeding.generator(self._seed, epoch, key)
        return (
            draw_bands(bands.frequency_masks, bands.frequency_width, generator),
            draw_bands(bands.time_masks, bands.time_width, generator),
        )

    def _waveform(self, part: int, row: int, key: int, epoch: int, into: NDArray[np.int16] | None) -> NDArray[np.int16]:
        index, _ = self._collection.parts[part]
        if into is not None and index.encoding == "pcm16" and not self._augmentation.changes(key, epoch):
            self._readers[part].read_into(row, into)
            return into
        waveform = decode(self._readers[part].segment(row))
        if len(waveform) != index.samples[row]:
            raise AudioError(
                UNREADABLE,
                f"{index.id(row)} is damaged in its shard: {len(waveform)} of {index.samples[row]} samples are there.",
            )
        changed = self._augmentation.waveform(waveform, key, epoch)
        if into is None:
            return changed
        into[:] = changed
        return into

    def id(self, utterance: int) -> str:
        """The utterance's id."""
        return self._collection.id(utterance)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the shards."""
        for reader in self._readers:
            reader.close()
