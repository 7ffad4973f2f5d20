"""One utterance: read, decoded, tokenised, its augmentation drawn; keyed by (seed, epoch, utterance) alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from allears import seeding
from allears.audio.decode import decode
from allears.layers.augment import SpecAugmentSettings, draw_bands
from allears.loading.augment import AugmentSettings
from allears.shards.read import ShardReader
from allears.types import Example

if TYPE_CHECKING:
    from allears.loading.collection import Collection
    from allears.text.tokenizer import Tokenizer

NO_BANDS = SpecAugmentSettings(frequency_masks=0, time_masks=0)


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
        self._bands = spec_augment or NO_BANDS
        self._augmentation = (augment or AugmentSettings()).build(seed)
        self._readers = [ShardReader(index) for index, _ in collection.parts]

    def example(self, utterance: int, epoch: int) -> Example:
        """The utterance as it sounds in ``epoch``.

        Raises:
            AudioError: its audio cannot be used.
            DatasetError: its shard cannot be read.
        """
        part, row = self._collection.place(utterance)
        index, _ = self._collection.parts[part]
        key = int(index.keys[row])
        generator = seeding.generator(self._seed, epoch, key)
        bands = self._bands
        return Example(
            utterance,
            self._augmentation.waveform(decode(self._readers[part].segment(row)), key, epoch),
            self._tokenizer.encode(index.text(row)),
            draw_bands(bands.frequency_masks, bands.frequency_width, generator),
            draw_bands(bands.time_masks, bands.time_width, generator),
        )

    def id(self, utterance: int) -> str:
        """The utterance's id."""
        return self._collection.id(utterance)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the shards."""
        for reader in self._readers:
            reader.close()
