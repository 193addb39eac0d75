"""What can be held together, in one place: for the harness before an engine starts, for the server before a stream's
headers, and for the engine itself. Imports no torch.
"""

from dataclasses import dataclass

from backends.kvcompress.policies import READ_NO_QUERIES, check_policy
from backends.kvcompress.spec import KvSpec
from harness.core.errors import UsageError

SHARED_BY_TOKENS = ("channel", "kivi")  # granularities at which neighbouring tokens share a scale, and a page
_REGISTER = 8  # values that the compiled kernel unpacks at once, `store.layout.LANES`


@dataclass(frozen=True, slots=True)
class Holder:
    """What holds the slots. head_dim: values of a head. compiled: by the compiled kernel, which packs them really."""

    head_dim: int
    compiled: bool


def check_together(spec: KvSpec, holder: Holder) -> None:
    """Raises UsageError for an unknown policy, and for what does not go together on heads of this size."""
    check_policy(spec.evict)
    check_positions(spec)
    if spec.budget.bytes is not None:
        check_holes(spec)
    check_layout(spec, holder)


def check_positions(spec: KvSpec) -> None:
    """Raises UsageError where a policy compares positions that `reindex` would move."""
    if spec.reindex and (spec.evict not in READ_NO_QUERIES or spec.spread in ("adakv", "retrieval")):
        raise UsageError(
            f"kv.reindex=true goes with policies that read no queries ({', '.join(READ_NO_QUERIES)}), and with "
            "kv.spread=uniform or pyramid."
        )


def leaves_holes(spec: KvSpec) -> bool:
    """Whether a page stays held until the last of its slots is evicted."""
    return spec.quant != "none" and spec.granularity in SHARED_BY_TOKENS


def check_holes(spec: KvSpec) -> None:
    """Raises UsageError where evicted slots would leave holes in pages that a budget in bytes counts."""
    if leaves_holes(spec):
        raise UsageError(
            f"kv.budget.bytes cannot be held to with kv.granularity={spec.granularity}, whose evicted slots leave "
            "holes. Use kv.granularity=token_head, or kv.budget.tokens or .fraction."
        )


def check_layout(spec: KvSpec, holder: Holder) -> None:
    """Raises UsageError for what heads of this size cannot be packed to, and for what its holder cannot share."""
    if spec.share != "none" and holder.compiled:
        raise UsageError(
            f"kv.share={spec.share} is not held by the compiled kernel. Use backend.kernel=torch or kv.share=none."
        )
    if spec.share != "none" and spec.evict != "none":
        raise UsageError(f"kv.share={spec.share} keeps every token. Use kv.evict=none.")
    if spec.quant == "none":
        return
    if spec.rotate and not can_rotate(holder.head_dim):
        raise UsageError(
            f"kv.rotate=true needs heads of a power of two, this model's have {holder.head_dim} values. "
            "Use kv.rotate=false."
        )
    if spec.granularity != "group":
        return
    if holder.head_dim % spec.group:
        raise UsageError(
            f"kv.group={spec.group} does not divide the {holder.head_dim} values of a head. Choose one that does."
        )
    if holder.compiled and spec.group % _REGISTER:
        raise UsageError(f"kv.group={spec.group} is not a multiple of {_REGISTER}. Choose one that is.")


def can_rotate(head_dim: int) -> bool:
    """A Hadamard matrix is made for powers of two only."""
    return head_dim > 0 and head_dim & (head_dim - 1) == 0
