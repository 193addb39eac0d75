"""OpenVINO GenAI's continuous batching behind the `Engine` protocol. The only module that imports OpenVINO.

Everything the library would choose by itself (KV precision, prefix cache, split prefill, pool size) is set here.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from backends.openvino.blocks import block_tokens as block_tokens_of
from backends.openvino.precision import KV_PRECISIONS
from backends.serving.engine import Engine, EngineConfig, RequestOutput, Sampling
from harness.core.errors import EngineError
from harness.core.metric_names import KV_BLOCK_TOKENS, KV_RESERVED_BYTES, KV_USED_BYTES, REQUESTS_RUNNING

try:
    import numpy as np
    import openvino
    import openvino_genai as genai
except ImportError as error:
    raise EngineError(
        f"OpenVINO cannot be imported in this environment ({error}). "
        "Type: python -m harness.engines action=install engine=openvino, or name another environment with "
        "backend.python."
    ) from error

log = logging.getLogger("openvino")
_FEWEST_BLOCKS = 2
_FINISHES = {genai.GenerationFinishReason.STOP: "stop", genai.GenerationFinishReason.LENGTH: "length"}


def load(config: EngineConfig) -> Engine:
    """Load the model and set aside `config.kv_bytes` of KV cache, to the block.

    The library takes a number of blocks, and the bytes of a block depend on how it lays out quantised entries
    (scales and zero points included), which only a pipeline that has computed something tells. So one token
    is generated, and the pipeline is built again if the first guess was off by a block or more.
    """
    block_tokens = block_tokens_of(config.device)
    guess = (config.kv_bytes_per_token or config.kv_bytes / config.context_length) * block_tokens
    blocks = max(_FEWEST_BLOCKS, int(config.kv_bytes / guess))
    pipeline = _build(config, blocks)
    block_bytes = _first_token(pipeline) / blocks
    exact = int(config.kv_bytes / block_bytes)
    if exact * block_tokens < config.context_length:
        raise EngineError(
            f"backend.kv_bytes={config.kv_bytes} holds {exact * block_tokens} tokens of {config.kv_dtype} "
            f"KV, less than backend.context_length={config.context_length}. Give at least "
            f"{-(-config.context_length // block_tokens) * int(block_bytes)} bytes, or a shorter context."
        )
    if exact != blocks:
        log.info("a KV block has %d bytes, not %d: loading again with %d blocks", block_bytes, guess, exact)
        del pipeline
        pipeline = _build(config, exact)
        _first_token(pipeline)
    log.info("ready: %d KV blocks of %d tokens, %d bytes", exact, block_tokens, exact * block_bytes)
    return OpenVinoEngine(pipeline, exact, block_tokens, config)


def _build(config: EngineConfig, blocks: int) -> Any:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 0  # whole gigabytes only; the number of blocks decides instead
    scheduler.num_kv_blocks = blocks
    scheduler.max_num_seqs = config.max_running
    scheduler.max_num_batched_tokens = config.prefill_chunk
    scheduler.dynamic_split_fuse = True  # prefill in chunks, in the same steps as other requests' decoding
    scheduler.enable_prefix_caching = config.prefix_cache
    eviction = (config.own or {}).get("eviction")
    scheduler.use_cache_eviction = eviction is not None
    if eviction is not None:
        scheduler.cache_eviction_config = _eviction(eviction)
    properties: dict[str, Any] = {
        "KV_CACHE_PRECISION": KV_PRECISIONS[config.kv_dtype],
        "INFERENCE_PRECISION_HINT": config.dtype,
    }
    if config.device == "CPU":
        properties["INFERENCE_NUM_THREADS"] = config.threads
    log.info(
        "OpenVINO %s loads %s on %s with %s", genai.get_version(), config.model, config.device, properties
    )
    # The CPU plugin gives the thread that compiles a model a signal stack of its own, frees it with the model and,
    # with several models, may leave the thread on a freed one: the next signal then ends the process (SIGSEGV).
    # Signals arrive on the main thread, so models are compiled on another.
    with ThreadPoolExecutor(max_workers=1) as elsewhere:
        built = elsewhere.submit(
            genai.ContinuousBatchingPipeline, str(config.model), scheduler, config.device, properties
        )
    try:
        return built.result()
    except RuntimeError as error:
        raise EngineError(f"OpenVINO cannot load {config.model} on {config.device}: {error}") from error


def _eviction(wanted: Mapping[str, Any]) -> Any:
    return genai.CacheEvictionConfig(
        wanted["start"],
        wanted["recent"],
        wanted["keep"],
        getattr(genai.AggregationMode, wanted["scores"].upper()),
    )


def _first_token(pipeline: Any) -> int:
    """Generate one token, which also allocates the KV pool; its size in bytes."""
    wanted = genai.GenerationConfig()
    wanted.max_new_tokens = 1
    wanted.ignore_eos = True
    handle = pipeline.add_request(0, openvino.Tensor(np.zeros((1, 1), dtype=np.int64)), wanted)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    if not handle.can_read():
        raise EngineError("OpenVINO generated nothing for a prompt of one token.")
    return int(pipeline.get_metrics().kv_cache_size_in_bytes)


class _Running:
    """A request inside the library, and what is still to be told about it."""

    def __init__(self, handle: Any, prompt_tokens: int, sampling: Sampling) -> None:
        self.handle = handle
        self.sampling = sampling
        self.prompt_tokens = prompt_tokens
        self.untold_prompt = sampling.prompt_logprobs


class OpenVinoEngine:
    """One pipeline and the requests in it; see `backends.serving.engine.Engine`."""

    def __init__(self, pipeline: Any, blocks: int, block_tokens: int, config: EngineConfig) -> None:
        self.capacity_tokens = blocks * block_tokens
        self._blocks = blocks
        self._pipeline = pipeline
        self._config = config
        self._requests: dict[int, _Running] = {}  # inside the library
        # With split prefill the library limits the tokens of a step but not the requests in it; done here.
        self._queue: dict[int, tuple[list[int], Sampling]] = {}  # in order of arrival

    def add(self, request_id: int, ids: list[int], sampling: Sampling) -> None:
        """Queue a request; raises ValueError where it cannot be honoured."""
        if sampling.prompt_logprobs and self._config.prefix_cache:
            # Blocks found in the prefix cache are not computed again, and the library then returns no
            # log-probabilities for their tokens: a list that is silently too short.
            raise ValueError(
                "Log-probabilities of the prompt need backend.prefix_cache=false: OpenVINO gives none for "
                "cached tokens."
            )
        if sampling.alternatives:
            raise ValueError(
                "logprobs must be 0 or 1 here: OpenVINO tells the log-probability of the token itself, not of others."
            )
        self._queue[request_id] = ids, sampling

    def _admit(self) -> list[RequestOutput]:
        """Hand waiting requests to the library while fewer than `max_running` are in it."""
        refused = []
        while self._queue and len(self._requests) < self._config.max_running:
            request_id = next(iter(self._queue))
            ids, sampling = self._queue.pop(request_id)
            prompt = openvino.Tensor(np.array([ids], dtype=np.int64))
            try:
                handle = self._pipeline.add_request(request_id, prompt, self._generation(sampling))
            except RuntimeError as error:
                words = str(error).strip().splitlines()[-1]
                refused.append(RequestOutput(request_id, error=f"OpenVINO refuses this request: {words}"))
            else:
                self._requests[request_id] = _Running(handle, len(ids), sampling)
        return refused

    def _generation(self, sampling: Sampling) -> Any:
        wanted = genai.GenerationConfig()
        wanted.max_new_tokens = max(1, sampling.max_tokens)
        wanted.min_new_tokens = sampling.min_tokens
        wanted.ignore_eos = sampling.ignore_eos
        if self._config.eos_ids:
            wanted.eos_token_id = self._config.eos_ids[0]
            if not sampling.ignore_eos:
                wanted.stop_token_ids = set(self._config.eos_ids)
        wanted.do_sample = sampling.temperature > 0
        if wanted.do_sample:
            wanted.temperature = sampling.temperature
            wanted.top_p = sampling.top_p
            wanted.rng_seed = sampling.seed
        wanted.echo = sampling.prompt_logprobs
        wanted.logprobs = int(sampling.logprobs or sampling.prompt_logprobs)
        return wanted

    def cancel(self, request_id: int) -> None:
        """Tell the library; it frees the request's blocks in its next step."""
        self._queue.pop(request_id, None)
        running = self._requests.pop(request_id, None)
        if running is not None:
            running.handle.cancel()

    def has_work(self) -> bool:
        """Also true while the library has yet to drop a cancelled request."""
        return bool(self._queue) or bool(self._pipeline.has_non_finished_requests())

    def step(self) -> list[RequestOutput]:
        """One step of the library: a chunk of prefill, or a token for every running request, or both."""
        outputs = self._admit()
        if not self._pipeline.has_non_finished_requests():
            return outputs
        self._pipeline.step()
        for request_id, running in list(self._requests.items()):
            while running.handle.can_read():
                told = running.handle.read().values()
                outputs.extend(_output(request_id, running, output) for output in told)
            if running.handle.get_status() == genai.GenerationStatus.IGNORED:
                outputs.append(RequestOutput(request_id, error="The KV cache is too small for this request."))
            if outputs and outputs[-1].request_id == request_id and (outputs[-1].finish or outputs[-1].error):
                del self._requests[request_id]
        return outputs

    def gauges(self) -> dict[str, float]:
        """Bytes and running requests; the library counts neither prefix hits nor preemptions.

        Its usage is that of the last step, in percent, and not updated when requests end: with nothing
        running nothing is used. Blocks kept only for prefix hits are not in it (they are free to be taken).
        A request that was pushed out of the cache and waits to be computed again is not running.
        """
        metrics = self._pipeline.get_metrics()
        running = min(metrics.scheduled_requests, len(self._requests))
        blocks = round(metrics.cache_usage / 100 * self._blocks) if self._requests else 0
        reserved = metrics.kv_cache_size_in_bytes
        return {
            REQUESTS_RUNNING: running,
            KV_USED_BYTES: blocks * reserved / self._blocks,
            KV_RESERVED_BYTES: reserved,
            KV_BLOCK_TOKENS: self.capacity_tokens // self._blocks,
        }

    def close(self) -> None:
        """Drop the pipeline and its memory."""
        self._queue.clear()
        self._requests.clear()
        del self._pipeline


def _output(request_id: int, running: _Running, output: Any) -> RequestOutput:
    ids, logprobs = list(output.generated_ids), list(output.generated_log_probs)
    prompt_logprobs: tuple[float | None, ...] | None = None
    if running.untold_prompt:
        # With echo the first reading holds the prompt too; its first "log-probability" is a 1.0 without meaning.
        running.untold_prompt = False
        size = running.prompt_tokens
        prompt_logprobs = (None, *logprobs[1:size])
        ids, logprobs = ids[size:], logprobs[size:]
    if running.sampling.max_tokens == 0:
        ids, logprobs = [], []  # the library computes one token at least
    finish = _FINISHES.get(output.finish_reason)
    return RequestOutput(
        request_id,
        token_ids=tuple(ids),
        logprobs=tuple(logprobs) if running.sampling.logprobs else None,
        prompt_logprobs=prompt_logprobs,
        finish="length" if running.sampling.max_tokens == 0 and finish else finish,
    )
