"""The harness's side of SGLang: what it refuses, what it starts, what it makes of SGLang's metrics."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import sglang as adapter
from backends.sglang_metrics import sglang_metrics
from harness.core import metric_names as names
from harness.core.errors import EngineError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import endpoint, sglang

_GEOMETRY = ModelGeometry(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192)
_TOKEN = 2 * 30 * 3 * 64 * 4  # f32 bytes of one token


@pytest.fixture
def model(tmp_path: Path) -> ModelFiles:
    (tmp_path / "model.safetensors").touch()
    return ModelFiles("tiny", tmp_path, tmp_path, _GEOMETRY, "0")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setattr(adapter, "nvidia_gpu_here", lambda: False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_dtype": "fp8"}, r"backend\.kv_dtype=fp8.* on cpu\. Choose f32 or bf16\."),
        ({"kv_dtype": "int8"}, r"backend\.kv_dtype=int8.*f32 or bf16"),
        ({"dtype": "fp8"}, r"backend\.dtype=fp8.*f32 or bf16 or f16"),
        ({"weight_dtype": "fp8"}, r"backend\.weight_dtype=fp8.*Choose f32\."),
        ({"device": "cuda"}, r"backend\.dtype=f32.* on cuda\. Choose bf16 or f16"),
        ({"device": "cuda", "dtype": "bf16", "kv_dtype": "bf16"}, r"cuda.*no NVIDIA GPU.*cpu"),
        ({"device": "npu"}, r"backend\.device=npu.*cpu or cuda"),
        ({"tensor_parallel": 2}, r"backend\.tensor_parallel=2.*Use 1"),
        ({"attention": "intel_amx"}, r"backend\.attention=intel_amx: .*no kernels.*backend\.python="),
        ({"prefill_chunk": None}, r"backend\.prefill_chunk=null"),
        ({"prefill_chunk": 0}, r"backend\.prefill_chunk=0"),
        ({"context_length": 8187}, r"backend\.context_length=8187.*at most 8186"),
        ({"kv_bytes": 5127 * _TOKEN - 1}, rf"backend\.kv_bytes=.*5120 tokens.*{5127 * _TOKEN} bytes"),
    ],
)
def test_what_it_cannot_honour_is_named_with_what_works(
    model: ModelFiles, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        sglang(**changes).check(model)


def test_one_gpu_is_not_several(model: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "nvidia_gpu_here", lambda: True)
    with pytest.raises(UsageError, match=r"tensor_parallel=2.*backend\.device=cuda"):
        sglang(device="cuda.1", dtype="bf16", kv_dtype="fp8", tensor_parallel=2).check(model)


def test_a_missing_engine_is_named_with_the_command_that_brings_it(model: ModelFiles) -> None:
    """The last of all checks: the smallest pool and the longest context that fit have passed."""
    for fits in ({"kv_bytes": 5127 * _TOKEN}, {"context_length": 8186}):
        with pytest.raises(EngineError, match=r"harness\.engines action=install engine=sglang device=cpu"):
            sglang(python=sys.executable, **fits).check(model)


def launched(model: ModelFiles, **changes: Any) -> tuple[dict[str, str], dict[str, str], set[str], str]:
    """Arguments with a value, environment, switches and module of a launch on five cores."""
    spec = sglang(**changes).launch(model, 1234, 5)
    assert spec is not None
    assert spec.argv[1:3] == ("-P", "-m")
    words, values, switches = list(spec.argv[4:]), {}, set()
    while words:
        word = words.pop(0)
        if words and not words[0].startswith("--"):
            values[word] = words.pop(0)
        else:
            switches.add(word)
    return values, dict(spec.env), switches, spec.argv[3]


def test_the_launch_line_carries_every_setting(model: ModelFiles) -> None:
    values, environment, switches, _ = launched(
        model, dtype="bf16", kv_dtype="bf16", prefix_cache=True, seed=7
    )
    assert values["--model-path"] == str(model.weights)
    assert values["--served-model-name"] == "tiny"
    assert values["--port"] == "1234"
    assert values["--device"] == "cpu"
    assert values["--dtype"] == "bfloat16"
    assert values["--kv-cache-dtype"] == "auto"
    assert values["--max-running-requests"] == "8"
    assert values["--chunked-prefill-size"] == "256"
    assert values["--random-seed"] == "7"
    assert values["--attention-backend"] == "torch_native"
    assert "--quantization" not in values
    assert "--disable-radix-cache" not in switches
    assert {"--enable-metrics", "--enable-cache-report", "--sleep-on-idle"} <= switches
    assert environment["SGLANG_USE_CPU_ENGINE"] == "1"
    assert environment["OMP_NUM_THREADS"] == "5"


def test_without_a_prefix_cache_its_tree_is_off(model: ModelFiles) -> None:
    assert "--disable-radix-cache" in launched(model)[2]


def test_keys_and_values_may_be_smaller_than_the_computation(model: ModelFiles) -> None:
    assert launched(model, dtype="f32", kv_dtype="bf16")[0]["--kv-cache-dtype"] == "bf16"


def test_a_request_may_fill_the_context_to_its_last_token(model: ModelFiles) -> None:
    """SGLang trims a prompt and its answer to two tokens less than its context, and a prompt to six less."""
    values = launched(model, context_length=1000)[0]
    assert int(values["--context-length"]) == 1006
    assert int(values["--max-total-tokens"]) >= 1006


@given(kv_bytes=st.integers(5127 * _TOKEN, 1 << 34))
def test_the_pool_takes_no_more_than_it_was_given_and_wastes_less_than_a_token(kv_bytes: int) -> None:
    folder = Path(__file__).parent
    files = ModelFiles("tiny", folder, folder, _GEOMETRY, "0")
    pool = sglang(kv_bytes=kv_bytes)._pool_tokens(files.geometry)
    taken = (pool + 1) * _TOKEN  # with the slot that padding is written to
    assert taken <= kv_bytes < taken + _TOKEN


def test_a_gpu_has_quantised_kv_and_weights_and_a_number(model: ModelFiles) -> None:
    values, environment, switches, module = launched(
        model, device="cuda.1", dtype="bf16", weight_dtype="fp8", kv_dtype="fp8"
    )
    assert values["--device"] == "cuda"
    assert values["--quantization"] == "fp8"
    assert values["--kv-cache-dtype"] == "fp8_e4m3"
    assert "--attention-backend" not in values
    assert "--sleep-on-idle" not in switches
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert "SGLANG_USE_CPU_ENGINE" not in environment
    assert module == "sglang.launch_server"


def test_an_environment_of_the_users_starts_sglang_itself(model: ModelFiles) -> None:
    assert launched(model, python=sys.executable)[3] == "sglang.launch_server"


def test_the_environment_made_for_a_cpu_starts_what_it_brings(
    model: ModelFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path))
    recipe = sglang().recipe()
    recipe.python().parent.mkdir(parents=True)
    recipe.python().touch()
    recipe.complete.write_text("{}")
    module = launched(model)[3]
    assert recipe.overlay_folder is not None
    assert (recipe.overlay_folder / f"{module}.py").is_file()


def test_speeds_of_reference_kernels_are_marked_wherever_they_are_shown() -> None:
    assert "not representative" in sglang().capabilities().caveats[0]
    own = {"attention": "intel_amx", "python": sys.executable}
    assert sglang(**own).capabilities().caveats == ()
    assert "not representative" in sglang(attention="intel_amx").capabilities().caveats[0]
    assert sglang(base_url="http://127.0.0.1:1").capabilities().caveats == ()
    assert "not verified on hardware" in sglang(device="cuda").capabilities().caveats[0]


def test_ids_are_asked_for_only_where_it_gives_them() -> None:
    """It refuses a streamed chat that asks for them."""
    assert sglang().request_extras() == {"return_token_ids": True}
    assert sglang(api="chat").request_extras() == {}
    assert not sglang(api="chat").capabilities().return_token_ids


def test_only_a_server_of_ours_is_reset() -> None:
    assert (sglang(prefix_cache=True).cache_reset() or "").startswith("/flush_cache")
    assert sglang(prefix_cache=False).cache_reset() is None
    assert sglang(prefix_cache=True, base_url="http://127.0.0.1:1").cache_reset() is None


_EXPOSITION = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 4.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 1.0
# TYPE sglang:kv_used_tokens gauge
sglang:kv_used_tokens{model_name="m",tp_rank="0"} 8192.0
# TYPE sglang:kv_evictable_tokens gauge
sglang:kv_evictable_tokens{model_name="m",tp_rank="0"} 1321.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 32768.0
# TYPE sglang:page_size gauge
sglang:page_size{model_name="m",tp_rank="0"} 64.0
# TYPE sglang:kv_cache_memory_usage_gb gauge
sglang:kv_cache_memory_usage_gb{model_name="m",tp_rank="0"} 0.5
# TYPE sglang:fwd_occupancy gauge
sglang:fwd_occupancy{model_name="m",tp_rank="0"} NaN
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="m",tp_rank="0"} 2.0
# TYPE sglang:prefill_effective_tokens_total counter
sglang:prefill_effective_tokens_total{mode="input",model_name="m",tp_rank="0"} 1000.0
sglang:prefill_effective_tokens_total{mode="device_hit",model_name="m",tp_rank="0"} 600.0
sglang:prefill_effective_tokens_total{mode="host_hit",model_name="m",tp_rank="0"} 40.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 1500.0
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 100.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{is_streaming="true",model_name="m"} 77.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{is_streaming="true",model_name="m"} 5.0
"""
_SPECULATION = """
# TYPE sglang:spec_verify_calls_total counter
sglang:spec_verify_calls_total{model_name="m"} 24.0
# TYPE sglang:spec_num_draft_tokens gauge
sglang:spec_num_draft_tokens{model_name="m",tp_rank="0"} 4.0
"""


def test_its_metrics_become_the_common_ones() -> None:
    assert sglang_metrics(_EXPOSITION) == {
        names.REQUESTS_RUNNING: 4,
        names.REQUESTS_WAITING: 1,
        names.KV_RESERVED_BYTES: 1 << 29,
        names.KV_USED_BYTES: 1 << 27,  # a quarter of the pool; what could be evicted is not in use
        names.KV_BLOCK_TOKENS: 64,
        names.PREEMPTIONS: 2,
        names.PREFIX_QUERY_TOKENS: 1640,
        names.PREFIX_HIT_TOKENS: 640,
        names.PROMPT_TOKENS: 1600,
        names.GENERATED_TOKENS: 77,
    }
    assert endpoint("http://h").common_metrics(_EXPOSITION) == sglang_metrics(_EXPOSITION)


def test_the_pool_of_several_gpus_is_that_of_all() -> None:
    one, two = (sglang(tensor_parallel=ranks).common_metrics(_EXPOSITION) for ranks in (1, 2))
    assert two[names.KV_RESERVED_BYTES] == 2 * one[names.KV_RESERVED_BYTES]
    assert two[names.KV_USED_BYTES] == 2 * one[names.KV_USED_BYTES]


def test_accepted_tokens_are_those_that_no_verification_and_no_prompt_gave() -> None:
    found = sglang_metrics(_EXPOSITION + _SPECULATION)
    assert found[names.ACCEPTED_TOKENS] == 77 - 24 - 5
    assert found[names.DRAFTED_TOKENS] == 24 * 3


def test_nothing_pushed_out_is_none_rather_than_unknown() -> None:
    lines = [line for line in _EXPOSITION.splitlines() if "retracted" not in line]
    assert sglang_metrics("\n".join(lines))[names.PREEMPTIONS] == 0


def test_another_servers_text_means_nothing() -> None:
    assert sglang_metrics("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3.0\n") == {}
