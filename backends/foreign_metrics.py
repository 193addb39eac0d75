"""What SGLang 0.5 shows at /metrics, under the common names; what it does not tell is left out."""

from backends.exposition import samples, summed
from harness.core.metric_names import (
    GENERATED_TOKENS,
    KV_RESERVED_BYTES,
    KV_USED_BYTES,
    PREFIX_HIT_TOKENS,
    PROMPT_TOKENS,
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
)

_SGLANG = {
    "sglang:num_running_reqs": REQUESTS_RUNNING,
    "sglang:num_queue_reqs": REQUESTS_WAITING,
    "sglang:cached_tokens_total": PREFIX_HIT_TOKENS,
    "sglang:prompt_tokens_total": PROMPT_TOKENS,
    "sglang:generation_tokens_total": GENERATED_TOKENS,
}
_GIB = 1 << 30


def sglang_metrics(exposition: str) -> dict[str, float]:
    """SGLang: the pool in GiB, its use in tokens of those the pool holds."""
    values = summed(exposition, _SGLANG)
    sizes = {name: value for name, _, value in samples(exposition) if name.startswith("sglang:")}
    pool = sizes.get("sglang:kv_cache_memory_usage_gb", 0.0) * _GIB
    if pool:
        values[KV_RESERVED_BYTES] = pool
        used, most = sizes.get("sglang:kv_used_tokens"), sizes.get("sglang:max_total_num_tokens")
        if used is not None and most:
            values[KV_USED_BYTES] = used / most * pool
    return values
