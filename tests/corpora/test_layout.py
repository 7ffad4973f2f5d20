"""What all readers share."""

from __future__ import annotations

from allears.corpora.layout import ids_from_paths


def test_ids_are_told_apart() -> None:
    places = [("a.wav", 0.0), ("a.flac", 0.0), ("b.wav", 0.0), ("b.wav", 1.5), ("/c/../c.wav", 0.0), ("d", 0.0)]
    assert ids_from_paths(places) == ["a.wav", "a.flac", "b-00000000", "b-00001500", "c/c", "d"]
    assert ids_from_paths([("a.wav", 0.0), ("a.wav", 0.0)]) == ["a", "a"]
