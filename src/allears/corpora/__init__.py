"""Readers of corpora as they come; one file for each layout."""
