"""Log-probabilities → token ids."""
