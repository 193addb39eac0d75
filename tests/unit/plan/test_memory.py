from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.plan.composing import all_cards, options_from
from harness.plan.planning import setting_of, wish_of
from harness.plan.policy import Policy, checked_policy
from harness.plan.precision import Precision, checked
from harness.plan.remedies import remedies
from harness.plan.setting import Setting

MODELS = ("mistral-7b", "qwen3-30b-a3b", "gemma-3-27b", "deepseek-v3", "smollm2-135m")


def setting(*arguments: str) -> Setting:
    return setting_of(options_from(list(arguments)))


def test_mistral_7b_as_everybody_knows_it():
    grouped = setting("model=mistral-7b")
    assert grouped.kv_bytes_per_token == 131_072
    assert setting("model.config.num_key_value_heads=32").kv_bytes_per_token == 524_288
    assert round(grouped.kv_bytes(4000) / 1e9, 1) == 0.5
    assert round(grouped.kv_bytes(16000) / 1e9, 1) == 2.1
    assert round(80 * grouped.kv_bytes(4000) / 1e9) == 42
    assert not grouped.fits(80, 4000)  # the default card has 24 GB


def test_kv_of_other_attentions_by_hand():
    assert setting("model=deepseek-v3").kv_bytes_per_token == (512 + 64) * 61 * 2
    assert setting("model=smollm2-135m", "kv_dtype=f32").kv_bytes_per_token == 46_080
    per_layer = 2 * 16 * 128 * 2
    gemma = setting("model=gemma-3-27b")
    assert gemma.kv_bytes(1024) == 62 * 1024 * per_layer
    assert gemma.kv_bytes(8192) == (10 * 8192 + 52 * 1024) * per_layer


def test_scales_are_counted():
    assert Precision("int4", 32, 4).bytes_per_value == 0.5 + 4 / 32
    scaled = setting("kv_dtype=int8", "kv_group=128", "kv_scale_bytes=2")
    assert scaled.kv_bytes_per_token == 32 * 2 * 8 * 128 * (1 + 2 / 128)


def test_quantised_checkpoints_leave_embeddings_in_16_bit():
    g = setting().geometry
    assert setting("weight_dtype=bf16").weight_bytes == 2 * g.parameters
    assert setting("weight_dtype=f32").weight_bytes == 4 * g.parameters
    int4 = setting("weight_dtype=int4")
    assert int4.weight_bytes == 0.5 * g.matrices() + 2 * (g.parameters - g.matrices())


def test_policies_keep_what_they_say():
    assert checked_policy("full", 5, 0.5).kept(100) == 100
    assert checked_policy("tokens", 40, None).kept(100) == checked_policy("window", 40, None).kept(100) == 40
    assert checked_policy("fraction", None, 0.25).kept(100) == 25
    assert checked_policy("fraction", None, 0.1).kept(1) == 1  # something always stays
    assert checked_policy("fraction", None, 0.3).kept(10) == 3  # 0.3 · 10 is a little over 3 in binary


def test_gemma_under_a_budget_smaller_than_its_window():
    per_layer = 2 * 16 * 128 * 2
    gemma = setting("model=gemma-3-27b", "policy=tokens", "policy.tokens=500")
    assert gemma.kv_bytes(8192) == 62 * 500 * per_layer


def test_devices_share_weights_and_repeat_heads_they_cannot_split():
    one, eight = setting("model=llama-3.1-70b"), setting("model=llama-3.1-70b", "devices=8")
    assert eight.usable_bytes == 8 * one.usable_bytes
    assert eight.weight_bytes == one.weight_bytes
    assert eight.kv_bytes(1000) == one.kv_bytes(1000)
    assert setting("model=llama-3.1-70b", "devices=16").kv_bytes(1000) == 2 * one.kv_bytes(1000)
    latent = setting("model=deepseek-v3", "devices=8")
    assert latent.kv_bytes(1000) == 8 * setting("model=deepseek-v3").kv_bytes(1000)
    with pytest.raises(UsageError, match="devices=3"):
        setting("devices=3")


@settings(deadline=None, max_examples=40)
@given(
    model=st.sampled_from(MODELS),
    users=st.integers(1, 600),
    context=st.integers(1, 8000),
    budget=st.none() | st.integers(1, 5000),
)
def test_limits_are_exact_and_memory_never_falls(model: str, users: int, context: int, budget: int | None):
    s = MADE[model]
    if budget is not None:
        s = replace(s, policy=Policy("tokens", tokens=budget))
    most, longest = s.most_users(context), s.longest_context(users)
    assert most == 0 or s.fits(most, context)
    assert not s.fits(most + 1, context)
    assert longest == 0 or s.fits(users, longest)
    assert longest == s.geometry.context_length or not s.fits(users, longest + 1)
    assert s.kv_bytes(context) <= s.kv_bytes(context + 1)
    assert s.needed_bytes(users, context) < s.needed_bytes(users + 1, context)
    sizes = [replace(s, kv=Precision(dtype)).kv_bytes(context) for dtype in ("int4", "fp8", "bf16", "f32")]
    assert sizes == sorted(set(sizes))


MADE = {model: setting(f"model={model}", "hardware=h200") for model in MODELS}


def test_what_would_help_80_users_on_24_gb():
    s = setting("hardware=l4")
    found = {one.overrides: one for one in remedies(s, 80, 4000, all_cards())}
    kv = 4000 * 131_072
    assert found["users=13"].enough
    assert found["kv_dtype=fp8"].users == int((21.6e9 - s.weight_bytes) // (kv / 2)) == 27
    assert not found["kv_dtype=fp8"].enough
    assert found["weight_dtype=int4"].users == 33
    assert found["hardware=a100-80g"].enough
    assert found["devices=4"].enough
    for one in found.values():
        changed = setting(
            *(word for word in one.overrides.split() if word.split("=")[0] not in ("users", "context"))
        )
        assert one.enough == changed.fits(min(80, one.users), min(4000, one.context)) or not one.enough
        if one.enough:
            wish = dict(word.split("=") for word in one.overrides.split())
            assert changed.fits(int(wish.get("users", 80)), int(wish.get("context", 4000)))


def test_where_the_weights_alone_are_too_much_fewer_users_is_no_remedy():
    found = [one.overrides for one in remedies(setting("model=llama-3.1-70b"), 1, 100, all_cards())]
    assert found
    assert not any(word.startswith(("users=", "context=")) for word in found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["weight_dtype=fp7"], "weight_dtype=fp7"),
        (["kv_dtype=auto"], "choose one of"),
        (["kv_group=32"], "no scales"),
        (["kv_dtype=int4", "kv_group=0"], "kv_group=0"),
        (["kv_dtype=int4", "kv_group=32", "kv_scale_bytes=0"], "kv_scale_bytes"),
        (["kv_dtype=int4", "kv_group=32", "kv_scale_bytes=nan"], "kv_scale_bytes"),
        (["policy=tokens", "policy.tokens=0"], "policy.tokens"),
        (["policy=fraction", "policy.fraction=1.5"], "policy.fraction"),
        (["hardware.price_per_hour=0"], "price is above 0"),
        (["hardware.memory_gb=-1"], "hardware.memory_gb"),
        (["hardware.usable=2"], "hardware.usable"),
        (["model=config"], "model.path"),
        (["context=40000"], "at most 32768"),
        (["context=100"], "are longer"),
        (["prompt_tokens=4000"], "are longer"),
        (["users=0"], "users=0"),
        (["context=null"], "prompt_tokens"),
        (["users=many"], "a whole number"),
        (["userz=3"], "Did you mean users"),
        (["hardware.prize=3"], "Keys: hardware.name"),
        (["hardware=h300"], "Did you mean hardware=h"),
        (["model.config.layers=3"], "no such key"),
        (["context=1,2"], "several values"),
        (["mistral-7b"], "KEY=VALUE"),
        (["runs=[a"], "cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], words: str):
    with pytest.raises(UsageError, match=words):
        options = options_from(arguments)
        wish_of(options, setting_of(options))


def test_lengths_that_are_left_out_follow_from_the_others():
    options = options_from(["context=1000", "output_tokens=100"])
    assert wish_of(options, setting_of(options)).prompt_tokens == 900
    options = options_from(["context=null", "prompt_tokens=700", "output_tokens=100"])
    assert wish_of(options, setting_of(options)).context == 800


def test_checked_precision():
    assert checked("kv", "fp8", None, 2).bytes_per_value == 1
