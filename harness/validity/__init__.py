"""Checks that stand beside every figure: what would spoil it, and whether it did."""

from harness.validity.check import Check, Evidence
from harness.validity.prefixes import shareable_tokens
from harness.validity.registry import CHECKS, evaluate

__all__ = ["CHECKS", "Check", "Evidence", "evaluate", "shareable_tokens"]
