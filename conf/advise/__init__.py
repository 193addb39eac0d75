"""The configuration of `python -m harness.advise`: what a setting is asked for."""
