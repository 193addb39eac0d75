"""The configuration of `python -m harness.gate`."""
