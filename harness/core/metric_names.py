"""The common names of what engines report about themselves.

Adapters map an engine's own metrics to these, so that one column of telemetry means the same for every engine.
The servers of `backends.serving` expose exactly these names on /metrics, prefixed with `harness_`.
"""

PREFIX = "harness_"

REQUESTS_RUNNING = "requests_running"
REQUESTS_WAITING = "requests_waiting"
KV_USED_BYTES = "kv_used_bytes"
KV_RESERVED_BYTES = "kv_reserved_bytes"
KV_BLOCK_TOKENS = "kv_block_tokens"
WEIGHTS_BYTES = "weights_bytes"
PREFIX_QUERY_TOKENS = "prefix_query_tokens_total"
PREFIX_HIT_TOKENS = "prefix_hit_tokens_total"
PREEMPTIONS = "preemptions_total"
PROMPT_TOKENS = "prompt_tokens_total"
GENERATED_TOKENS = "generated_tokens_total"
DRAFTED_TOKENS = "drafted_tokens_total"
ACCEPTED_TOKENS = "accepted_tokens_total"

GAUGES = {
    REQUESTS_RUNNING: "Requests being prefilled or decoded",
    REQUESTS_WAITING: "Requests accepted and not yet started",
    KV_USED_BYTES: "Bytes of KV cache held by live entries, rounded up to blocks",
    KV_RESERVED_BYTES: "Bytes of memory set aside for the KV cache",
    KV_BLOCK_TOKENS: "Tokens of the blocks that a request takes KV cache by",
    WEIGHTS_BYTES: "Bytes of the model's weights as they are held",
}
COUNTERS = {
    PREFIX_QUERY_TOKENS: "Prompt tokens looked up in the prefix cache",
    PREFIX_HIT_TOKENS: "Prompt tokens found in the prefix cache",
    PREEMPTIONS: "Requests pushed out of the KV cache and computed again",
    PROMPT_TOKENS: "Prompt tokens accepted",
    GENERATED_TOKENS: "Tokens generated",
    DRAFTED_TOKENS: "Tokens proposed by speculative decoding",
    ACCEPTED_TOKENS: "Proposed tokens that the model accepted",
}
