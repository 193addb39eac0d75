"""Advice from recorded runs: which setting to take under an SLO and a quality limit, and what it costs."""
