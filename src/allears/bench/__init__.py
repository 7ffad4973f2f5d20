"""What things cost on this machine, measured; one file a subject."""
