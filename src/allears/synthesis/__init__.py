"""Synthetic speech from espeak-ng voices: a corpus for the demo, the tests and the benchmarks, without a download.

grammar, voices → espeak → voicebox (forks for each utterance) → recording, noise → worker (a process) → pool (many)
→ corpus (a folder)
"""
