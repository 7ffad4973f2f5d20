"""The manifest of a dataset, one JSON line an utterance, and its memory-mapped index."""
