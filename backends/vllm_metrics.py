"""What vLLM shows at /metrics, under the common names (as vLLM 0.32 names it)."""

from backends.exposition import samples, summed
from harness.core.metric_names import (
    ACCEPTED_TOKENS,
    DRAFTED_TOKENS,
    GENERATED_TOKENS,
    KV_BLOCK_TOKENS,
    KV_RESERVED_BYTES,
    KV_USED_BYTES,
    PREEMPTIONS,
    PREFIX_HIT_TOKENS,
    PREFIX_QUERY_TOKENS,
    PROMPT_TOKENS,
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
)

_NAMES = {
    "vllm:num_requests_running": REQUESTS_RUNNING,
    "vllm:num_requests_waiting": REQUESTS_WAITING,
    "vllm:prefix_cache_queries_total": PREFIX_QUERY_TOKENS,
    "vllm:prefix_cache_hits_total": PREFIX_HIT_TOKENS,
    "vllm:num_preemptions_total": PREEMPTIONS,
    "vllm:prompt_tokens_total": PROMPT_TOKENS,
    "vllm:generation_tokens_total": GENERATED_TOKENS,
    "vllm:spec_decode_num_draft_tokens_total": DRAFTED_TOKENS,
    "vllm:spec_decode_num_accepted_tokens_total": ACCEPTED_TOKENS,
}
_POOL, _SHARE = "vllm:cache_config_info", "vllm:kv_cache_usage_perc"


def vllm_metrics(exposition: str, ranks: int = 1) -> dict[str, float]:
    """The pool's bytes and blocks are labels of `cache_config_info`; its use is a share of 1, for each replica.

    The bytes are those of one of a replica's `ranks` GPUs. One block of the pool is vLLM's own: the share is of the
    others. {} where the text is not vLLM's.
    """
    values = summed(exposition, _NAMES)
    pools: dict[str, tuple[float, float]] = {}
    shares: dict[str, float] = {}
    for name, labels, value in samples(exposition, (_POOL, _SHARE)):
        if name == _POOL:
            size, blocks = labels.get("kv_cache_memory_bytes", ""), labels.get("num_gpu_blocks", "")
            if (block := labels.get("block_size", "")).isdigit():
                values[KV_BLOCK_TOKENS] = float(block)
            if size.isdigit():  # "None" where vLLM sized the pool by itself
                usable = 1 - 1 / int(blocks) if blocks.isdigit() and int(blocks) > 1 else 1.0
                pools[labels.get("engine", "")] = (float(size) * ranks, usable)
        elif name == _SHARE:
            shares[labels.get("engine", "")] = value
    if pools:
        values[KV_RESERVED_BYTES] = sum(size for size, _ in pools.values())
        if shares.keys() == pools.keys():
            values[KV_USED_BYTES] = sum(
                shares[engine] * usable * size for engine, (size, usable) in pools.items()
            )
    return values
