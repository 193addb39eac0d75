"""What attention and the compressor remember of one request between passes, beside its slots."""

from dataclasses import dataclass, field

import torch

from backends.kvcompress.budgets import Allowance
from backends.kvcompress.contracts import Policy
from backends.kvcompress.spec import KvSpec


@dataclass(slots=True)
class HeldRequest:
    """A row of the store.

    prompt: its tokens. next: per layer, the position that the store is given for the next token; the token's own one
    unless positions are those within the cache. due: per layer, the tokens seen at which a decode step looks first
    whether something is to be evicted or packed. queries: per layer, the latest queries [Q, w, D] of the prompt so
    far and their positions [w], where the next chunk may have fewer than the policy looks at. breadths: by layer
    (`breadth.breadth_of`), as measured last while nothing of the prompt was evicted.
    """

    row: int
    spec: KvSpec
    prompt: int
    policy: Policy
    allowance: Allowance
    next: list[int]
    due: list[int]
    queries: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    breadths: dict[int, float] = field(default_factory=dict)
