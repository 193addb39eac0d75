"""The harness's side of vLLM: what it refuses, what it starts, what it makes of vLLM's metrics."""

import sys
from pathlib import Path
from typing import Any

import pytest

from backends import vllm as adapter
from backends.vllm_metrics import vllm_metrics
from harness.core import metric_names as names
from harness.core.errors import EngineError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import endpoint, vllm

_GEOMETRY = ModelGeometry(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192)
_BLOCK = 128 * 2 * 30 * 3 * 64 * 4  # f32 bytes of 128 tokens
_AVX512 = frozenset({"avx2", "avx512f"})


@pytest.fixture
def model(tmp_path: Path) -> ModelFiles:
    (tmp_path / "model.safetensors").touch()
    return ModelFiles("tiny", tmp_path, tmp_path, _GEOMETRY, "0")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with AVX-512, no GPU, nothing of vLLM in the environment: whatever this machine has."""
    monkeypatch.setattr(adapter, "cpu_flags", lambda: _AVX512)
    monkeypatch.setattr(adapter, "nvidia_gpu_here", lambda: False)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_dtype": "int8"}, r"backend\.kv_dtype=int8.* on cpu\. Choose f32 or fp8"),
        ({"kv_dtype": "f16"}, r"backend\.kv_dtype=f16.*f32 or fp8"),
        ({"dtype": "fp8"}, r"backend\.dtype=fp8.*f32 or bf16 or f16"),
        ({"weight_dtype": "int4"}, r"backend\.weight_dtype=int4.*Choose f32"),
        ({"device": "npu"}, r"backend\.device=npu.*cpu or cuda"),
        ({"device": "cuda"}, r"backend\.device=cuda.*no NVIDIA GPU.*cpu"),
        ({"prefill_chunk": 7}, r"backend\.prefill_chunk=7.*max_running=8"),
        ({"prefix_cache": None}, r"backend\.prefix_cache=null"),
        # 5120 tokens are 40 blocks of 128, and one is vLLM's own.
        ({"kv_bytes": 41 * _BLOCK - 1}, rf"backend\.kv_bytes=.*5120 tokens.*{41 * _BLOCK} bytes"),
    ],
)
def test_what_it_cannot_honour_is_named_with_what_works(
    model: ModelFiles, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        vllm(**changes).check(model)


def test_an_fp8_cache_needs_avx512_or_amx(model: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "fp8" in vllm().capabilities().kv_dtypes
    monkeypatch.setattr(adapter, "cpu_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(UsageError, match=r"kv_dtype=fp8.*Choose f32\."):
        vllm(kv_dtype="fp8").check(model)


@pytest.mark.parametrize(
    ("flags", "changes", "caveats"),
    [
        ({"avx2", "avx512f"}, {"dtype": "bf16"}, 1),
        ({"avx2", "avx512f"}, {"dtype": "f32"}, 0),
        ({"avx512_bf16"}, {"dtype": "bf16"}, 0),
        (set(), {"dtype": "bf16"}, 0),  # nobody knows
        (
            {"avx2"},
            {"dtype": "bf16", "base_url": "http://127.0.0.1:1"},
            0,
        ),  # its owner's own choice, not ours
    ],
)
def test_an_arithmetic_that_this_cpu_only_emulates_is_told_with_every_figure(
    flags: set[str], changes: dict[str, Any], caveats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "cpu_flags", lambda: frozenset(flags))
    told = vllm(**changes).capabilities().caveats
    assert len(told) == caveats
    assert all("emulates bf16" in words for words in told)


def test_a_variable_that_would_override_the_pool_is_refused(
    model: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "4")
    with pytest.raises(UsageError, match="unset VLLM_CPU_KVCACHE_SPACE"):
        vllm().check(model)


def test_one_gpu_is_not_several(model: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "nvidia_gpu_here", lambda: True)
    with pytest.raises(UsageError, match=r"tensor_parallel=2.*backend\.device=cuda"):
        vllm(device="cuda.1", tensor_parallel=2).check(model)


def test_a_missing_engine_is_named_with_the_command_that_brings_it(model: ModelFiles) -> None:
    with pytest.raises(EngineError, match=r"harness\.engines action=install engine=vllm device=cpu"):
        vllm(python=sys.executable).check(model)


def given(model: ModelFiles, **changes: Any) -> tuple[dict[str, str], dict[str, str], set[str]]:
    """Arguments with a value, environment and switches of a launch on five cores."""
    spec = vllm(**changes).launch(model, 1234, 5)
    assert spec is not None
    assert spec.argv[1:4] == ("-P", "-m", "vllm.entrypoints.openai.api_server")
    words, values, switches = list(spec.argv[4:]), {}, set()
    while words:
        word = words.pop(0)
        if words and not words[0].startswith("--"):
            values[word] = words.pop(0)
        else:
            switches.add(word)
    return values, dict(spec.env), switches


def test_the_launch_line_carries_every_setting(model: ModelFiles) -> None:
    values, environment, switches = given(model, kv_dtype="fp8", dtype="bf16", prefix_cache=True, eager=False)
    assert values["--model"] == str(model.weights)
    assert values["--served-model-name"] == "tiny"
    assert values["--port"] == "1234"
    assert values["--dtype"] == "bfloat16"
    assert values["--kv-cache-dtype"] == "fp8"
    assert values["--max-model-len"] == "5120"
    assert values["--max-num-seqs"] == "8"
    assert values["--max-num-batched-tokens"] == "256"
    assert values["--seed"] == "0"
    assert "--enable-prefix-caching" in switches
    assert "--enforce-eager" not in switches
    assert environment["OMP_NUM_THREADS"] == "5"
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_keys_and_values_are_stored_as_the_computation_goes_unless_quantised(model: ModelFiles) -> None:
    values, _, switches = given(model)
    assert values["--kv-cache-dtype"] == "auto"
    assert {"--no-enable-prefix-caching", "--enforce-eager"} <= switches


def test_the_pool_is_whole_blocks_and_never_more_than_asked_for(model: ModelFiles) -> None:
    values, _, _ = given(model, kv_bytes=50 * _BLOCK + 17)
    assert int(values["--kv-cache-memory-bytes"]) == 50 * _BLOCK


def test_the_pool_is_shared_out_over_the_processes_and_shown_as_one(model: ModelFiles) -> None:
    """vLLM takes the size, and shows it, for one of them."""
    for device in ("cpu", "cuda"):
        one, two = (
            given(model, kv_bytes=50 * _BLOCK, device=device, tensor_parallel=ranks)[0] for ranks in (1, 2)
        )
        assert int(one["--kv-cache-memory-bytes"]) == 2 * int(two["--kv-cache-memory-bytes"]) == 50 * _BLOCK
    alone, pair = (vllm(tensor_parallel=ranks).common_metrics(_EXPOSITION) for ranks in (1, 2))
    for name in (names.KV_RESERVED_BYTES, names.KV_USED_BYTES):
        assert pair[name] == 2 * alone[name]


def test_a_small_chunk_lowers_the_requests_computed_at_once(model: ModelFiles) -> None:
    """As when perplexity is fed in small chunks to an engine that serves many."""
    values, _, _ = given(model, max_running=256, prefill_chunk=64)
    assert values["--max-num-seqs"] == values["--max-num-batched-tokens"] == "64"


def test_threads_are_shared_by_the_processes_of_a_tensor_parallel_engine(model: ModelFiles) -> None:
    _, environment, _ = given(model, tensor_parallel=2)
    assert environment["OMP_NUM_THREADS"] == "2"


def test_a_gpu_has_quantised_weights_and_a_number(model: ModelFiles) -> None:
    values, environment, _ = given(model, device="cuda.1", weight_dtype="fp8", kv_dtype="int4")
    assert values["--quantization"] == "fp8"
    assert values["--kv-cache-dtype"] == "int4_per_token_head"
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert "OMP_NUM_THREADS" not in environment
    assert "not verified on hardware" in vllm(device="cuda").capabilities().caveats[0]


def test_only_a_server_of_ours_is_reset(model: ModelFiles) -> None:
    assert vllm(prefix_cache=True).cache_reset() == "/reset_prefix_cache"
    assert vllm(prefix_cache=False).cache_reset() is None
    running = vllm(prefix_cache=True, base_url="http://127.0.0.1:1")
    assert running.cache_reset() is None
    assert running.launch(model, 1, 1) is None


_EXPOSITION = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",engine="0",kv_cache_memory_bytes="101000",num_gpu_blocks="101"} 1.0
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0"} 1000.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0"} 640.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0"} 1.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} 1000.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0"} 77.0
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0"} 40.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 30.0
"""


def test_its_metrics_become_the_common_ones() -> None:
    assert vllm_metrics(_EXPOSITION) == {
        names.REQUESTS_RUNNING: 3,
        names.REQUESTS_WAITING: 2,
        names.KV_RESERVED_BYTES: 101_000,
        names.KV_USED_BYTES: pytest.approx(25_000),  # 25 of the 100 blocks that are not vLLM's own
        names.KV_BLOCK_TOKENS: 128,
        names.PREFIX_QUERY_TOKENS: 1000,
        names.PREFIX_HIT_TOKENS: 640,
        names.PREEMPTIONS: 1,
        names.PROMPT_TOKENS: 1000,
        names.GENERATED_TOKENS: 77,
        names.DRAFTED_TOKENS: 40,
        names.ACCEPTED_TOKENS: 30,
    }
    assert endpoint("http://h").common_metrics(_EXPOSITION) == vllm_metrics(_EXPOSITION)


def test_replicas_are_added_up_and_each_pool_has_its_own_share() -> None:
    second = _EXPOSITION.replace('engine="0"', 'engine="1"').replace("0.25", "0.75")
    body = "\n".join(line for line in (_EXPOSITION + second).splitlines() if not line.startswith("#"))
    found = vllm_metrics(body)
    assert found[names.REQUESTS_RUNNING] == 6
    assert found[names.KV_RESERVED_BYTES] == 202_000
    assert found[names.KV_USED_BYTES] == pytest.approx(100_000)
    assert found[names.KV_BLOCK_TOKENS] == 128


def test_a_pool_of_unknown_size_has_no_bytes() -> None:
    found = vllm_metrics(_EXPOSITION.replace('"101000"', '"None"'))
    assert names.KV_RESERVED_BYTES not in found
    assert names.KV_USED_BYTES not in found
