"""Transcripts: normalisation and tokenizers."""
