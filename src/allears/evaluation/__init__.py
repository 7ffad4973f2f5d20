"""The evaluation engine: every utterance decoded once, on any number of ranks, and errors counted exactly."""
