"""Audio files in, int16 samples at 16 kHz out."""
