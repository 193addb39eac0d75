"""What SGLang shows at /metrics, under the common names (as SGLang 0.5.23 names it)."""

from backends.exposition import samples
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
    "sglang:num_running_reqs": REQUESTS_RUNNING,
    "sglang:num_queue_reqs": REQUESTS_WAITING,
    "sglang:num_retracted_requests_total": PREEMPTIONS,
    "sglang:prompt_tokens_total": PROMPT_TOKENS,
    "sglang:generation_tokens_total": GENERATED_TOKENS,
}
_PREFILLED = "sglang:prefill_effective_tokens_total"  # label mode: "input" was computed, the rest was found
_PARTS = (
    "kv_cache_memory_usage_gb",
    "kv_used_tokens",
    "max_total_num_tokens",
    "page_size",
    "generation_tokens_total",
    "num_requests_total",
    "spec_num_draft_tokens",
    "spec_verify_calls_total",
)
_READ = tuple({*_NAMES, _PREFILLED, *(f"sglang:{part}" for part in _PARTS)})
_GIB = 1 << 30


def sglang_metrics(exposition: str, ranks: int = 1) -> dict[str, float]:
    """The pool's size is told in GiB, for one of `ranks` GPUs, its use in tokens; {} for a text of another server."""
    values: dict[str, float] = {}
    parts: dict[str, float] = {}  # added up over replicas
    replicas = 0
    for name, labels, value in samples(exposition, _READ):
        if name in _NAMES:
            _add(values, _NAMES[name], value)
        if name == _PREFILLED:
            _add(values, PREFIX_QUERY_TOKENS, value)
            _add(values, PREFIX_HIT_TOKENS, 0.0 if labels.get("mode") == "input" else value)
        _add(parts, name.removeprefix("sglang:"), value)
        replicas += name == "sglang:max_total_num_tokens"
    if values:
        values.setdefault(PREEMPTIONS, 0.0)  # a counter is shown from its first count on
    pool = parts.get("kv_cache_memory_usage_gb", 0.0) * _GIB * ranks
    if pool:
        values[KV_RESERVED_BYTES] = pool
        used, most = parts.get("kv_used_tokens"), parts.get("max_total_num_tokens")
        if used is not None and most:
            values[KV_USED_BYTES] = used / most * pool
    if page := parts.get("page_size"):
        values[KV_BLOCK_TOKENS] = page / max(1, replicas)
    return values | _speculation(parts, max(1, replicas))


def _add(values: dict[str, float], name: str, value: float) -> None:
    values[name] = values.get(name, 0.0) + value


def _speculation(parts: dict[str, float], replicas: int) -> dict[str, float]:
    """Drafted and accepted tokens of the requests that ended, where it speculates.

    A verification yields what it accepted and one token more; the first token of a request comes from its prompt.
    """
    verified = parts.get("spec_verify_calls_total", 0.0)
    if not verified:
        return {}
    accepted = parts.get("generation_tokens_total", 0.0) - verified - parts.get("num_requests_total", 0.0)
    drafted = verified * (parts.get("spec_num_draft_tokens", 0.0) / replicas - 1)
    return {ACCEPTED_TOKENS: max(0.0, accepted), **({DRAFTED_TOKENS: drafted} if drafted > 0 else {})}
