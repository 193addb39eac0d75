"""Calculates what fits and how fast it could be: memory, capacity, roofline and cost, without running anything."""
