"""Faults that a rank can be given from outside: a folder for PYTHONPATH."""
