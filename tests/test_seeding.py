from __future__ import annotations

import numpy as np

from allears import seeding


def test_a_name_has_the_same_key_on_every_machine() -> None:
    assert seeding.key("u0001") == 12302196590582836294
    assert len({seeding.key(f"u{number}") for number in range(10_000)}) == 10_000


def test_draws_depend_on_every_word_and_its_place() -> None:
    keys = np.arange(4, dtype=np.uint64)
    contexts = [(), (0,), (0, 0), (0, 1), (1, 0), (1, 1), (-1, 0), (2**64, 1, 0)]
    drawn = [tuple(seeding.hashed(keys, *context).tolist()) for context in contexts]
    assert len({word for words in drawn for word in words}) == 4 * len(contexts)
    assert seeding.hashed(keys, 5, 6).tolist() == seeding.hashed(keys, 5, 6).tolist()


def test_the_draw_of_a_key_does_not_depend_on_its_neighbours() -> None:
    keys = np.arange(100, dtype=np.uint64) * np.uint64(2**57)
    whole = seeding.uniform(keys, 3, 4)
    assert np.array_equal(seeding.uniform(keys[::-1], 3, 4)[::-1], whole)
    assert seeding.uniform(keys[17:18], 3, 4)[0] == whole[17]


def test_draws_are_uniform_even_for_keys_and_contexts_in_a_row() -> None:
    for drawn in (
        seeding.uniform(np.arange(100_000, dtype=np.uint64), 0, 0),
        np.concatenate([seeding.uniform(np.arange(10, dtype=np.uint64), 0, epoch) for epoch in range(10_000)]),
    ):
        assert 0 <= drawn.min() < 1e-3
        assert 1 - 1e-3 < drawn.max() < 1
        counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
        assert abs(counts - 5000).max() < 5 * np.sqrt(5000)
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02


def test_each_bit_of_a_key_moves_half_of_the_bits_of_its_word() -> None:
    flipped = seeding.hashed(np.array([0, *(1 << bit for bit in range(64))], dtype=np.uint64), 7)
    moved = np.array([int(word ^ flipped[0]).bit_count() for word in flipped[1:]])
    assert moved.min() > 12
    assert abs(moved.mean() - 32) < 3


def test_seeds_differ_in_their_low_32_bits() -> None:
    seeds = [seeding.mixed(seed, step, place) for seed in (0, 1) for step in range(200) for place in range(16)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len({seed & 0xFFFFFFFF for seed in seeds}) >= len(seeds) - 2  # two may meet by chance
    assert seeding.mixed(1, 2) != seeding.mixed(2, 1)


def test_a_generator_belongs_to_its_words() -> None:
    def drawn(*words: int) -> tuple[float, ...]:
        return tuple(seeding.generator(*words).random(3))

    assert drawn(1, 2, 3) == drawn(1, 2, 3)
    assert len({drawn(*words) for words in ((1, 2, 3), (3, 2, 1), (1, 2), (1, 2, 4), (-1, 2, 3))}) == 5
