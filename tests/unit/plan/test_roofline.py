import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan.composing import options_from
from harness.plan.planning import cost_of, setting_of
from harness.plan.roofline import (
    attention_pairs,
    decode_flops,
    distinct_experts,
    prefill_flops,
    prefill_s,
    speeds,
    step_times,
    weights_read,
)
from harness.plan.setting import Setting


def setting(*arguments: str) -> Setting:
    return setting_of(options_from(list(arguments)))


@settings(deadline=None)
@given(tokens=st.integers(1, 60), window=st.none() | st.integers(1, 70))
def test_pairs_are_those_of_the_mask(tokens: int, window: int | None):
    query, key = np.indices((tokens, tokens))
    mask = (key <= query) & (query - key < (window or tokens))
    assert attention_pairs(tokens, window) == mask.sum()


def test_a_prompt_by_hand():
    s = setting("model=llama-3.1-8b", "hardware=h100")
    matrices = 32 * (2 * 4096 * (32 + 8) * 128 + 3 * 4096 * 14336)
    flops = 2 * matrices * 2000 + 32 * 4 * 32 * 128 * (2000 * 2001 // 2) + 2 * 128256 * 4096
    assert prefill_flops(s, 2000) == flops
    assert prefill_s(s, 2000) == pytest.approx(flops / 989.5e12)


def test_one_token_waits_for_weights_and_kv():
    s = setting("model=mistral-7b", "hardware=l4")
    embedding = 32768 * 4096  # looked up, not read
    _, memory = step_times(s, 8, 4000)
    assert memory == pytest.approx((2 * (s.geometry.parameters - embedding) + 8 * 4000 * 131_072) / 300e9)
    made = speeds(s, 8, 3900, 200)
    assert made.limited_by == "memory"
    assert made.step_s == memory


def test_a_large_batch_of_short_requests_waits_for_operations():
    s = setting("model=mistral-7b", "hardware=l4")
    compute, memory = step_times(s, 2000, 8)
    assert compute is not None and memory is not None
    assert compute > memory
    assert compute == pytest.approx(2000 * decode_flops(s, 8) / 121e12)


def test_eight_bit_weights_run_at_the_eight_bit_rate_where_there_is_one():
    assert setting("hardware=l4", "weight_dtype=fp8").flops == 242.5e12
    assert setting("hardware=a10g", "weight_dtype=fp8").flops == 70e12
    assert setting("hardware=l4", "weight_dtype=int4").flops == 121e12
    assert setting("hardware=l4", "devices=2").flops == 242e12


def test_a_budget_shortens_decode_a_window_the_prompt_too():
    full, kept = setting(), setting("policy=tokens", "policy.tokens=100")
    window = setting("policy=window", "policy.tokens=100")
    assert decode_flops(kept, 4000) == decode_flops(full, 100) == decode_flops(window, 4000)
    assert prefill_flops(kept, 4000) == prefill_flops(full, 4000) > prefill_flops(window, 4000)


def test_experts_that_a_batch_reads():
    s = setting("model=qwen3-30b-a3b", "hardware=h200")
    assert distinct_experts(s.geometry, 1) == pytest.approx(8)
    assert distinct_experts(s.geometry, 2) == pytest.approx(8 + 8 * (1 - 8 / 128))
    assert distinct_experts(s.geometry, 10_000) == pytest.approx(128)
    assert weights_read(s, 1) == pytest.approx(2 * s.geometry.active_parameters)
    # Against draws: each of 20 tokens takes 8 of 128 without replacement.
    random = np.random.default_rng(0)
    drawn = [len({int(e) for _ in range(20) for e in random.permutation(128)[:8]}) for _ in range(300)]
    assert distinct_experts(s.geometry, 20) == pytest.approx(np.mean(drawn), rel=0.01)


def test_latent_attention_reads_the_latent_itself():
    s = setting("model=deepseek-v3", "hardware=h200")
    difference = decode_flops(s, 1001) - decode_flops(s, 1000)
    assert difference == 61 * 2 * 128 * (512 + 64 + 512)


def test_throughput_and_tpot_share_one_cycle():
    s = setting("hardware=l4")
    made = speeds(s, 10, 1000, 101)
    assert made.ttft_s and made.tpot_s and made.step_s and made.tokens_per_s and made.requests_per_s
    assert made.ttft_s + 100 * made.tpot_s == pytest.approx(10 * made.ttft_s + 100 * made.step_s)
    assert made.requests_per_s * (made.ttft_s + 100 * made.tpot_s) == pytest.approx(10)  # Little's law
    assert made.tokens_per_s == pytest.approx(101 * made.requests_per_s)
    assert speeds(s, 1, 1000, 1).tpot_s is None


def test_unknown_figures_stay_unknown():
    made = speeds(setting("hardware=cpu"), 1, 100, 10)
    assert made.ttft_s is made.step_s is made.tokens_per_s is made.limited_by is None
    assert cost_of(setting("hardware=cpu", "hardware.price_per_hour=1"), made) == {}


def test_cost_is_price_over_tokens():
    s = setting("hardware=l4", "hardware.price_per_hour=3.6", "devices=2")
    made = speeds(s, 4, 1000, 100)
    assert made.tokens_per_s is not None and made.requests_per_s is not None
    cost = cost_of(s, made)
    assert cost["per_million_output_tokens"] == pytest.approx(2 * 1e-3 * 1e6 / made.tokens_per_s)
    assert cost["per_query"] == pytest.approx(2e-3 / made.requests_per_s)
    assert cost["per_user_hour"] == pytest.approx(2 * 3.6 / made.users)


@settings(deadline=None, max_examples=30)
@given(users=st.integers(1, 100), tokens=st.integers(1, 4000))
def test_more_work_never_takes_less_time(users: int, tokens: int):
    s = GEMMA
    prompt, longer = prefill_s(s, tokens), prefill_s(s, tokens + 1)
    assert prompt is not None and longer is not None
    assert prompt <= longer
    for now, more in zip(step_times(s, users, tokens), step_times(s, users + 1, tokens + 1), strict=True):
        assert now is not None and more is not None
        assert now < more


GEMMA = setting("model=gemma-3-27b", "hardware=h100")
