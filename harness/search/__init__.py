"""Several loads against one running engine: a list of them, or the highest that still meets an SLO."""
