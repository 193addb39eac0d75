"""The configuration of `python -m harness.plan`: models, hardware and policies as data."""
