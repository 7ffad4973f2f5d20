"""Counting errors exactly."""
