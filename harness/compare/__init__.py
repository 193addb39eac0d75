"""Comparing recorded runs: small pure functions over numbers, and what they make of runs."""
