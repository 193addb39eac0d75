"""The roofline: no engine can be faster than the bytes it must read and the operations it must do allow.

After Williams, Waterman and Patterson, "Roofline" (CACM 2009): a step takes at least the longer of operations /
(operations per second) and bytes / bandwidth. Communication between devices, scheduling and launching are left out.
"""

from dataclasses import dataclass

from harness.plan.geometry import Geometry
from harness.plan.setting import Setting


@dataclass(frozen=True, slots=True)
class Speeds:
    """Bounds in seconds and per second, None where the hardware's figures are not known.

    ttft_s: of a prompt that has the device to itself. step_s: one token for each of `users`. tpot_s: the same with
    the other users' prompts in between. tokens_per_s: output, of all users, who ask again at once.
    limited_by: what a step waits for.
    """

    users: int
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None
    step_s: float | None
    tpot_s: float | None
    tokens_per_s: float | None
    requests_per_s: float | None
    limited_by: str | None


def attention_pairs(tokens: int, window: int | None) -> int:
    """Pairs of a query and a key it sees when so many tokens are read: Σ min(i, window), i = 1 … tokens."""
    if window is None or tokens <= window:
        return tokens * (tokens + 1) // 2
    return window * (window + 1) // 2 + (tokens - window) * window


def distinct_experts(geometry: Geometry, tokens: int) -> float:
    """Experts of a layer that so many tokens need together, on average: E (1 − (1 − k/E)^n) if all are as popular."""
    if geometry.experts is None:
        return 0.0
    routed, active = geometry.experts.routed, geometry.experts.active
    return routed * (1 - (1 - active / routed) ** tokens)


def prefill_flops(setting: Setting, tokens: int) -> float:
    """Operations to read a prompt: 2 per parameter and token, 2 per pair and value of a key or value, one output."""
    g = setting.geometry
    active = g.matrices(g.experts.active if g.experts else None)
    if g.latent:
        per_pair = 2 * g.heads * (g.latent.nope + g.latent.rope + g.latent.value)
    else:
        per_pair = 4 * g.heads * g.head_dim
    limit = setting.policy.attended
    in_window = attention_pairs(tokens, _narrower(g.window, limit)) * g.window_layers
    pairs = attention_pairs(tokens, limit) * g.full_layers + in_window
    return 2 * active * tokens + per_pair * pairs + 2 * g.head


def decode_flops(setting: Setting, tokens: int) -> float:
    """Operations for the next token of one request that has read and written so many."""
    g, kept = setting.geometry, setting.policy.kept(tokens)
    active = g.matrices(g.experts.active if g.experts else None)
    # Latent attention reads the latent itself: the matrices around it are absorbed into query and output.
    per_pair = 2 * g.heads * (2 * g.latent.latent + g.latent.rope) if g.latent else 4 * g.heads * g.head_dim
    pairs = g.full_layers * kept + g.window_layers * min(kept, g.window or kept)
    return 2 * (active + g.head) + per_pair * pairs


def weights_read(setting: Setting, tokens: int) -> float:
    """Bytes of the weights that a step over so many tokens reads: all but the embedding and unneeded experts."""
    g = setting.geometry
    matrices = g.matrices(distinct_experts(g, tokens))
    return matrices * setting.weights.bytes_per_value + (g.head + g.vectors) * setting.embedding_bytes


def prefill_s(setting: Setting, tokens: int) -> float | None:
    """Seconds to read one prompt that has the device to itself."""
    bytes_moved = weights_read(setting, tokens) + setting.kv_bytes(tokens)
    return _longer(_compute_s(setting, prefill_flops(setting, tokens)), _memory_s(setting, bytes_moved))


def step_times(setting: Setting, users: int, tokens: int) -> tuple[float | None, float | None]:
    """Seconds that operations, and that reading memory, take for one more token of so many requests."""
    bytes_moved = weights_read(setting, users) + users * setting.kv_bytes(tokens)
    return _compute_s(setting, users * decode_flops(setting, tokens)), _memory_s(setting, bytes_moved)


def speeds(setting: Setting, users: int, prompt_tokens: int, output_tokens: int) -> Speeds:
    """Bounds for users who always have one request running, with continuous batching and without a prefix cache.

    A request holds on average its prompt and half its output. In the time it takes, users · prefill +
    (output − 1) · step, each user gets one answer; the first token is the prefill's.
    """
    prefill = prefill_s(setting, prompt_tokens)
    compute, memory = step_times(setting, users, prompt_tokens + output_tokens // 2)
    step = _longer(compute, memory)
    limited_by = None
    if compute is not None and memory is not None:
        limited_by = "compute" if compute > memory else "memory"
    if prefill is None or step is None:
        return Speeds(users, prompt_tokens, output_tokens, prefill, step, None, None, None, limited_by)
    cycle = users * prefill + (output_tokens - 1) * step
    # Without a second token there is no time per output token.
    tpot = step + (users - 1) * prefill / (output_tokens - 1) if output_tokens > 1 else None
    rate = users / cycle
    return Speeds(
        users, prompt_tokens, output_tokens, prefill, step, tpot, rate * output_tokens, rate, limited_by
    )


def _narrower(window: int | None, limit: int | None) -> int | None:
    known = [size for size in (window, limit) if size is not None]
    return min(known) if known else None


def _compute_s(setting: Setting, operations: float) -> float | None:
    return None if setting.flops is None else operations / setting.flops


def _memory_s(setting: Setting, bytes_moved: float) -> float | None:
    return None if setting.bytes_per_s is None else bytes_moved / setting.bytes_per_s


def _longer(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)
