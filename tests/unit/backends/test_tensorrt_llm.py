"""The harness's side of TensorRT-LLM, against a small server that answers as its documentation says."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from backends import tensorrt_llm as adapter
from backends.http_calls import post_json
from backends.process import wait_ready
from backends.tensorrt_llm_metrics import StepsSeen
from harness.client.bodies import BodyStyle
from harness.client.chunks import read_stream
from harness.core import metric_names as names
from harness.core.errors import UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from harness.core.requests import PlannedRequest
from harness.core.tls import Trust
from harness.telemetry.sources import EngineMetrics
from tests.support.backends import tensorrt_llm
from tests.support.http_server import QuietHandler, served

_GEOMETRY = ModelGeometry(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192)
_TOKEN = 2 * 30 * 3 * 64 * 2  # bf16 bytes of one token

# Request fields of tensorrt_llm/serve/openai_protocol.py; any other is an error there (pydantic's extra="forbid").
_SAMPLING = """
    frequency_penalty ignore_eos include_stop_str_in_output length_penalty logit_bias logprobs lora_request min_p
    min_tokens n presence_penalty prompt_ignore_length repetition_penalty response_format seed skip_special_tokens
    spaces_between_special_tokens stop stop_token_ids stream stream_options temperature top_k top_p top_p_min
    truncate_prompt_tokens use_beam_search user best_of early_stopping add_special_tokens disaggregated_params model
    max_tokens echo
"""
_FIELDS = {
    "/v1/completions": {*_SAMPLING.split(), "prompt", "suffix", "return_context_logits", "detokenize"},
    "/v1/chat/completions": {
        *_SAMPLING.split(),
        "messages",
        "max_completion_tokens",
        "top_logprobs",
        "tools",
    },
}


def step(number: int, active: int, queued: int, used: int, reused: int, missed: int) -> dict[str, Any]:
    """One entry of /metrics, in the shape of its documentation's example."""
    return {
        "gpuMemUsage": 76665782272,
        "iter": number,
        "iterLatencyMS": 7.0,
        "kvCacheStats": {
            "allocNewBlocks": missed,
            "allocTotalBlocks": missed,
            "cacheHitRate": reused / (reused + missed),
            "freeNumBlocks": 1000 - used,
            "maxNumBlocks": 1000,
            "missedBlocks": missed,
            "reusedBlocks": reused,
            "tokensPerBlock": 32,
            "usedNumBlocks": used,
        },
        "inflightBatchingStats": {"numPausedRequests": 1, "numContextRequests": 1, "numGenRequests": active},
        "numActiveRequests": active,
        "numQueuedRequests": queued,
    }


class DocumentedServer(QuietHandler):
    """Refuses unknown fields, forgets metrics that were read."""

    steps: list[dict[str, Any]]
    lock = threading.Lock()

    def do_POST(self) -> None:
        asked = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        unknown = asked.keys() - _FIELDS[self.path]
        if unknown or ("stream_options" in asked and not asked.get("stream")):
            self._answer(400, "application/json", orjson.dumps({"error": f"Extra inputs: {sorted(unknown)}"}))
            return
        if not asked.get("stream"):
            self._answer(200, "application/json", orjson.dumps({"choices": [self._choice(" Paris", None)]}))
            return
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        events: list[dict[str, Any]] = [
            {"choices": [self._choice(" Paris", None)], "usage": None},
            {"choices": [self._choice(".", "length")], "usage": None},
            {"choices": [], "usage": usage},
        ]
        lines = [b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
        self._answer(200, "text/event-stream", b"".join([*lines, b"data: [DONE]\n\n"]))

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        said = {"delta": {"content": text}} if "chat" in self.path else {"text": text, "token_ids": None}
        return {"index": 0, **said, "logprobs": None, "finish_reason": reason, "stop_reason": None}

    def do_GET(self) -> None:
        with self.lock:
            told, type(self).steps = type(self).steps, []
        self._answer(200, "application/json", orjson.dumps(told))

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[tuple[str, type[DocumentedServer]]]:
    class One(DocumentedServer):
        steps: list[dict[str, Any]] = []  # noqa: RUF012

    with served(One) as address:
        yield address, One


@pytest.fixture
def model(tmp_path: Path) -> ModelFiles:
    (tmp_path / "model.safetensors").touch()
    return ModelFiles("tiny", tmp_path, tmp_path, _GEOMETRY, "0")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One with a GPU, and a cache of its own."""
    monkeypatch.setattr(adapter, "nvidia_gpu_here", lambda: True)
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cpu"}, r"backend\.device=cpu.*Choose cuda\."),
        ({"dtype": "f32"}, r"backend\.dtype=f32.*bf16 or f16"),
        ({"kv_dtype": "int8"}, r"backend\.kv_dtype=int8.*Choose bf16 or fp8"),
        ({"weight_dtype": "fp8"}, r"backend\.weight_dtype=fp8.*Choose bf16\."),
        ({"device": "cuda.1", "tensor_parallel": 2}, r"tensor_parallel=2.*backend\.device=cuda"),
        ({"prefill_chunk": 31}, r"backend\.prefill_chunk=31.*at least 32"),
        ({"prefill_chunk": 64, "max_running": 65}, r"prefill_chunk=64.*at least 65"),
        ({"model_name": "mine"}, r"backend\.model_name=mine.*Leave it null"),
        ({"kv_bytes": 5120 * _TOKEN - 1}, r"kv_bytes=.*less than backend\.context_length=5120"),
        # The pool is whole blocks of 32 tokens.
        (
            {"context_length": 5110, "kv_bytes": 5111 * _TOKEN},
            r"kv_bytes=.*holds 5088 tokens.*less than backend\.context_length=5110",
        ),
    ],
)
def test_what_it_cannot_honour_is_named_with_what_works(
    model: ModelFiles, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        tensorrt_llm(**changes).check(model)


def test_without_a_gpu_only_a_server_elsewhere_can_be_measured(
    model: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "nvidia_gpu_here", lambda: False)
    with pytest.raises(UsageError, match=r"NVIDIA GPU.*backend\.base_url"):
        tensorrt_llm().check(model)
    tensorrt_llm(base_url="http://127.0.0.1:1").check(model)


def test_every_setting_is_in_the_file_that_it_reads(model: ModelFiles) -> None:
    backend = tensorrt_llm(
        device="cuda.2", python="/env/bin/python", kv_dtype="fp8", prefix_cache=True, kv_bytes=10**9
    )
    spec = backend.launch(model, 1234, 4)
    assert spec is not None
    assert spec.argv[:2] == ("/env/bin/trtllm-serve", str(model.weights))
    words = dict(zip(spec.argv[2::2], spec.argv[3::2], strict=True))
    assert words["--host"] == "127.0.0.1"
    assert words["--port"] == "1234"
    assert spec.env["CUDA_VISIBLE_DEVICES"] == "2"
    settings = yaml.safe_load(Path(words["--config"]).read_text())
    pool = settings["kv_cache_config"].pop("max_tokens")
    assert settings == {
        "dtype": "bfloat16",
        "max_batch_size": 8,
        "max_num_tokens": 64,
        "max_seq_len": 5120,
        "tensor_parallel_size": 1,
        "enable_chunked_prefill": True,
        "enable_iter_perf_stats": True,
        "kv_cache_config": {"dtype": "fp8", "enable_block_reuse": True, "tokens_per_block": 32},
    }
    assert pool % 32 == 0
    assert pool * _TOKEN / 2 <= 10**9 < (pool + 32) * _TOKEN / 2
    assert backend.endpoint(model, 1234).model_name == model.weights.name


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_nothing_is_sent_that_it_would_reject(
    server: tuple[str, type[DocumentedServer]], model: ModelFiles, api: str
) -> None:
    backend = tensorrt_llm(base_url=server[0], model_name="tiny", api=api)
    able = backend.capabilities()
    wait_ready(backend.endpoint(model, 0), backend, None, 10)
    style = BodyStyle(api, "tiny", backend.request_extras(), able.ignore_eos, able.return_token_ids, 0.0)
    request = PlannedRequest(
        index=0,
        prompt_ids=(1, 2, 3),
        messages=({"role": "user", "content": "Hello"},),
        output_tokens=2,
        max_output_tokens=2,
        session=0,
    )
    reply = post_json(server[0] + style.path, orjson.loads(style.body(request)), {}, 10)
    assert reply.status == 200, reply.body
    assert read_stream(reply.body).text == " Paris."
    refused = post_json(
        server[0] + style.path, {**orjson.loads(style.body(request)), "return_token_ids": True}, {}, 10
    )
    assert refused.status == 400


def test_a_prompts_log_probabilities_have_no_route_which_is_said_in_words() -> None:
    able = tensorrt_llm().capabilities()
    assert not able.prompt_logprobs
    assert "not over HTTP" in able.no_logprobs
    assert able.caveats == ("TensorRT-LLM: not verified on hardware",)


def test_metrics_that_vanish_once_read_are_remembered(
    server: tuple[str, type[DocumentedServer]], model: ModelFiles
) -> None:
    address, told = server
    backend = tensorrt_llm()
    backend.prepare(model, lambda line: None)
    look = EngineMetrics(f"{address}/metrics", {}, backend.common_metrics, Trust())
    assert look.read() == {}
    block = 32 * _TOKEN
    told.steps = [step(1, 1, 5, 3, 0, 10), step(2, 4, 2, 9, 5, 15)]
    first = look.read()
    lasting = {
        names.KV_RESERVED_BYTES: 1000 * block,
        names.KV_BLOCK_TOKENS: 32,
        names.PREFIX_HIT_TOKENS: 5 * 32,
        names.PREFIX_QUERY_TOKENS: 20 * 32,
        names.PREEMPTIONS: 2,
    }
    gauges = {names.REQUESTS_RUNNING: 4, names.REQUESTS_WAITING: 2, names.KV_USED_BYTES: 9 * block}
    assert first == lasting | gauges
    assert look.read() == lasting
    told.steps = [step(3, 0, 0, 0, 6, 16)]
    third = look.read()
    assert third[names.PREEMPTIONS] == 3
    assert third[names.PREFIX_HIT_TOKENS] == 6 * 32
    assert third[names.KV_USED_BYTES] == 0


def test_speculation_is_added_up_over_steps() -> None:
    seen = StepsSeen(None)
    entry = {"specDecodingStats": {"numDraftTokens": 6, "numAcceptedTokens": 4}}
    body = orjson.dumps([entry, entry, {"specDecodingStats": None}]).decode()
    seen.read(body)
    assert seen.read(body) == {names.DRAFTED_TOKENS: 24, names.ACCEPTED_TOKENS: 16}


def test_bytes_of_a_pool_whose_dtype_is_not_known_are_left_out() -> None:
    found = StepsSeen(None).read(orjson.dumps([step(1, 1, 0, 3, 0, 10)]).decode())
    assert names.REQUESTS_RUNNING in found
    assert names.KV_USED_BYTES not in found
    assert names.KV_RESERVED_BYTES not in found


@pytest.mark.parametrize("body", ["", "[", "{}", "null", "# TYPE a gauge\na 1\n", "[1, null]"])
def test_what_is_no_list_of_steps_means_nothing(body: str) -> None:
    assert StepsSeen(1.0).read(body) == {}
