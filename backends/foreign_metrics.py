"""What vLLM and SGLang show at /metrics, under the common names.

Names from their servers' own expositions (vLLM 0.32, SGLang 0.5). What one of them does not tell is left out.
"""

from backends.exposition import samples, summed
from harness.core.metric_names import (
    GENERATED_TOKENS,
    KV_RESERVED_BYTES,
    KV_USED_BYTES,
    PREEMPTIONS,
    PREFIX_HIT_TOKENS,
    PREFIX_QUERY_TOKENS,
    PROMPT_TOKENS,
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
)

_VLLM = {
    "vllm:num_requests_running": REQUESTS_RUNNING,
    "vllm:num_requests_waiting": REQUESTS_WAITING,
    "vllm:prefix_cache_queries_total": PREFIX_QUERY_TOKENS,
    "vllm:prefix_cache_hits_total": PREFIX_HIT_TOKENS,
    "vllm:num_preemptions_total": PREEMPTIONS,
    "vllm:prompt_tokens_total": PROMPT_TOKENS,
    "vllm:generation_tokens_total": GENERATED_TOKENS,
}
_SGLANG = {
    "sglang:num_running_reqs": REQUESTS_RUNNING,
    "sglang:num_queue_reqs": REQUESTS_WAITING,
    "sglang:cached_tokens_total": PREFIX_HIT_TOKENS,
    "sglang:prompt_tokens_total": PROMPT_TOKENS,
    "sglang:generation_tokens_total": GENERATED_TOKENS,
}
_GIB = 1 << 30


def vllm_metrics(exposition: str) -> dict[str, float]:
    """vLLM: the pool's bytes are a label of `cache_config_info`, its use a share of 1, for each replica."""
    values = summed(exposition, _VLLM)
    pools: dict[str, float] = {}
    shares: dict[str, float] = {}
    for name, labels, value in samples(exposition):
        if name == "vllm:cache_config_info":
            size = labels.get("kv_cache_memory_bytes", "")
            if size.isdigit():  # "None" where vLLM sized the pool by itself
                pools[labels.get("engine", "")] = float(size)
        elif name == "vllm:kv_cache_usage_perc":
            shares[labels.get("engine", "")] = value
    if pools:
        values[KV_RESERVED_BYTES] = sum(pools.values())
        if shares.keys() == pools.keys():
            values[KV_USED_BYTES] = sum(shares[engine] * size for engine, size in pools.items())
    return values


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
