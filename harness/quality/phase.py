"""The quality phase: which text, through which server, and what is said where an engine has no route."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backends.base import Backend, Endpoint, EngineOptions
from backends.http_calls import Unreachable, post_json, server_words
from harness.config import QualityOptions
from harness.core.errors import EndpointError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.tokenizer import Tokenizer
from harness.quality.perplexity import perplexity
from workloads.corpus import read_corpus
from workloads.options import CorpusOptions

_WINDOW_TIMEOUT_S = 300.0
_PYTHON_DOCUMENTATION = CorpusOptions(
    name="pydoc",
    path=None,
    column="",
    dataset=None,
    subset=None,
    split="",
    revision=None,
    max_characters=10**9,
)
_CHOICES = ("none", "perplexity")


def check_quality(options: QualityOptions, backend: Backend, model: ModelGeometry) -> None:
    """Raise UsageError for options that cannot be measured, before anything starts."""
    if options.name not in _CHOICES:
        raise UsageError(f"quality.name={options.name}: choose one of {', '.join(_CHOICES)}.")
    if options.name == "none":
        return
    if options.text is not None and not Path(options.text).expanduser().is_file():
        raise UsageError(
            f"quality.text={options.text} is no file. Leave it out to use the Python documentation."
        )
    if not 1 <= _stride(options) <= options.window or options.window < 2:
        raise UsageError(
            f"quality.window={options.window} quality.stride={_stride(options)}: "
            "the window must be at least 2 tokens and the stride from 1 to the window."
        )
    if options.tokens < 2:
        raise UsageError(f"quality.tokens={options.tokens}: at least 2 are needed to predict one.")
    longest = backend.options.context_length or model.context_length
    # One token is generated beside the window, since not every server answers max_tokens=0.
    if options.window + 1 > longest:
        raise UsageError(
            f"quality.window={options.window} does not fit a context of {longest} tokens (one more token is "
            f"generated). Use at most {longest - 1}, or raise backend.context_length."
        )


def engine_for_quality(options: QualityOptions, engine: EngineOptions) -> EngineOptions:
    """The same engine as this phase needs it: fed `options.chunk` tokens at a time, and no prefix cache.

    Tokens found in a prefix cache are not computed again, so engines give no log-probabilities for them; what the
    KV cache holds is the same without one. Where the result differs from `engine`, the engine is started again.
    """
    if options.name == "none" or engine.base_url is not None:
        return engine
    chunk = engine.prefill_chunk if options.chunk is None else options.chunk
    prefix_cache = False if engine.prefix_cache else engine.prefix_cache
    return dataclasses.replace(engine, prefill_chunk=chunk, prefix_cache=prefix_cache)


def measure_quality(
    options: QualityOptions,
    backend: Backend,
    endpoint: Endpoint,
    tokenizer: Tokenizer,
    on_window: Callable[[int, int], None],
) -> dict[str, Any]:
    """The `quality` part of a run's summary; says in words what this engine cannot be asked."""
    if options.name == "none":
        return {}
    abilities = backend.capabilities()
    if not abilities.prompt_logprobs:
        return {
            "perplexity": None,
            "reason": abilities.no_logprobs,
        }
    text = _text(options)
    ids = tokenizer.encode(text)[: options.tokens]
    if len(ids) < 2:
        raise UsageError("quality.text holds fewer than two tokens.")

    def log_probs(window: Sequence[int]) -> list[float | None]:
        return _echoed_log_probs(endpoint, window)

    result = perplexity(ids, options.window, _stride(options), log_probs, tokenizer, on_window)
    result["chunk"] = options.chunk if options.chunk is not None else backend.options.prefill_chunk
    result["text_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    result["sees_kv_cache"] = abilities.logprobs_see_kv
    result["sees_eviction"] = abilities.logprobs_see_eviction
    return result


def _stride(options: QualityOptions) -> int:
    return options.window if options.stride is None else options.stride


def _echoed_log_probs(endpoint: Endpoint, ids: Sequence[int]) -> list[float | None]:
    """log p of each prompt token by `echo` and `logprobs`; one token is generated, as not every server takes 0."""
    body = {
        "model": endpoint.model_name,
        "prompt": list(ids),
        "echo": True,
        "logprobs": 1,
        "max_tokens": 1,
        "temperature": 0,
    }
    try:
        url = endpoint.base_url + "/v1/completions"
        reply = post_json(url, body, endpoint.headers, _WINDOW_TIMEOUT_S, endpoint.trust)
    except Unreachable as error:
        raise EndpointError(
            f"The server stopped answering while perplexity was measured ({error})."
        ) from error
    if reply.status != 200:
        raise EndpointError(
            f"The server refuses prompt log-probabilities: HTTP {reply.status}, {server_words(reply)}"
        )
    try:
        values: list[float | None] = reply.json()["choices"][0]["logprobs"]["token_logprobs"]
    except (KeyError, IndexError, TypeError):
        return []  # told as incomplete by the caller, which knows how many were due
    return values


def _text(options: QualityOptions) -> str:
    if options.text is not None:
        return Path(options.text).expanduser().read_text(encoding="utf-8", errors="replace")
    documents = read_corpus(_PYTHON_DOCUMENTATION).documents
    return "\n\n".join(document.text for document in documents)
