"""Whole models: a waveform goes in, a loss or log-probabilities come out."""
