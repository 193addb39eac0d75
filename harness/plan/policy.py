"""How much of the past a request keeps in its KV cache."""

import math
from dataclasses import dataclass

from harness.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Policy:
    """full: everything. window: the first tokens and the most recent ones, `tokens` in all, from the start on
    (StreamingLLM). tokens: at most so many, chosen once the prompt was read whole (H2O, SnapKV and their like).
    fraction: that share of what was read.
    """

    name: str
    tokens: int | None = None
    fraction: float | None = None

    def kept(self, tokens: int) -> int:
        """Tokens in the cache of a request that has read and written so many."""
        if self.fraction is not None:
            return math.ceil(round(self.fraction * tokens, 6))
        return tokens if self.tokens is None else min(tokens, self.tokens)

    @property
    def attended(self) -> int | None:
        """Most tokens that a token of the prompt attends to; None: all before it."""
        return self.tokens if self.name == "window" else None

    @property
    def title(self) -> str:
        """Words for a table."""
        if self.fraction is not None:
            return f"{100 * self.fraction:g} % of the past kept"
        if self.tokens is None:
            return "all kept"
        return f"{'window of' if self.name == 'window' else 'at most'} {self.tokens:,} tokens kept"


def checked_policy(name: str, tokens: int | None, fraction: float | None) -> Policy:
    """Raises UsageError where the one figure that the policy needs is missing or impossible."""
    if name == "full":
        return Policy(name)
    if name == "fraction":
        if fraction is None or not 0 < fraction <= 1:
            raise UsageError(
                "policy=fraction needs policy.fraction, above 0 and at most 1: policy.fraction=0.5"
            )
        return Policy(name, fraction=fraction)
    if tokens is None or tokens < 1:
        raise UsageError(f"policy={name} needs policy.tokens, at least 1: policy.tokens=1024")
    return Policy(name, tokens=tokens)
