"""Recorded runs: their schema, how they are written, how they are read."""
