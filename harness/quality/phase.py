"""The quality phase: which tasks, through which server, and what is said where an engine has no route."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.base import Backend, Capabilities, Endpoint, EngineOptions
from harness.core.errors import UsageError
from harness.core.geometry import ModelGeometry
from harness.core.tokenizer import Tokenizer
from harness.quality.agreement import agreement_pieces, check_agreement, continuations, next_tokens
from harness.quality.asking import continuation, continuation_ids, next_token_log_probs, prompt_log_probs
from harness.quality.options import AgreementOptions, PerplexityOptions, QualityOptions, RecallOptions
from harness.quality.perplexity import perplexity
from harness.quality.reading import check_reads_cache
from harness.quality.recall import check_recall, draw_items, recall
from harness.quality.tasks import Route, check_tasks, measure_tasks
from harness.quality.texts import documentation

if TYPE_CHECKING:
    import pandas as pd

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """What the phase found. figures: the `quality` part of a run's summary. next_tokens: a table of the record."""

    figures: dict[str, Any]
    next_tokens: "pd.DataFrame | None" = None


def check_quality(
    options: QualityOptions, backend: Backend, model: ModelGeometry, tokenizer: Tokenizer, seed: int
) -> None:
    """Raise UsageError for options that cannot be measured, before anything starts."""
    if options.asked() and options.chunk is not None and options.chunk < 1:
        raise UsageError(
            f"quality.chunk={options.chunk} must be at least 1; null feeds as the measured run does."
        )
    longest = backend.options.context_length or model.context_length
    if options.perplexity is not None:
        _check_perplexity(options.perplexity, longest)
    if options.asked() and backend.options.api != "completions":
        raise UsageError(
            f"quality={','.join(options.asked())} sends token ids. Leave backend.api=completions."
        )
    if options.recall is not None:
        check_recall(options.recall, longest)
        draw_items(options.recall, tokenizer, documentation(), seed)  # a prompt may lack room for its facts
    check_tasks(options, tokenizer, seed, longest)
    if options.agreement is not None:
        check_agreement(options.agreement, longest)
    check_reads_cache(options, backend, tokenizer, seed)


def _check_perplexity(options: PerplexityOptions, longest: int) -> None:
    if options.text is not None and not Path(options.text).expanduser().is_file():
        raise UsageError(
            f"quality.perplexity.text={options.text} is no file. Leave it out to use the Python documentation."
        )
    if not 1 <= _stride(options) <= options.window or options.window < 2:
        raise UsageError(
            f"quality.perplexity.window={options.window} quality.perplexity.stride={_stride(options)}: "
            "the window must be at least 2 tokens and the stride from 1 to the window."
        )
    if options.tokens < 2:
        raise UsageError(f"quality.perplexity.tokens={options.tokens}: at least 2 are needed to predict one.")
    # One token is generated beside the window, since not every server answers max_tokens=0.
    if options.window + 1 > longest:
        raise UsageError(
            f"quality.perplexity.window={options.window} does not fit a context of {longest} tokens (one more "
            f"token is generated). Use at most {longest - 1}, or raise backend.context_length."
        )


def engine_for_quality(options: QualityOptions, engine: EngineOptions) -> EngineOptions:
    """The same engine as this phase needs it: fed `options.chunk` tokens at a time, no prefix cache, KV as asked for.

    One request at a time is asked here, so that an engine which gives each what the pool has would keep everything,
    and a lossy setting would look exact: each request gets what the setting says instead. Tokens found in a
    prefix cache are not computed again, so engines give no log-probabilities for them; what the KV cache holds is the
    same without one. Where the result differs from `engine`, the engine is started again.
    """
    if not options.asked() or engine.base_url is not None:
        return engine
    chunk = engine.prefill_chunk if options.chunk is None else options.chunk
    prefix_cache = False if engine.prefix_cache else engine.prefix_cache
    return dataclasses.replace(engine.as_asked(), prefill_chunk=chunk, prefix_cache=prefix_cache)


def measure_quality(
    options: QualityOptions,
    backend: Backend,
    endpoint: Endpoint,
    tokenizer: Tokenizer,
    seed: int,
    say: Say,
) -> Judged:
    """Ask for every task; says in words what this engine cannot be asked. `say`: the progress."""
    if not options.asked():
        return Judged({})
    abilities = backend.capabilities()
    result: dict[str, Any] = {
        "chunk": options.chunk if options.chunk is not None else backend.options.prefill_chunk,
        "sees_kv_cache": abilities.logprobs_see_kv,
        "sees_eviction": abilities.logprobs_see_eviction,
    }

    def log_probs(ids: Sequence[int]) -> list[float | None]:
        return prompt_log_probs(endpoint, ids)

    route = log_probs if abilities.prompt_logprobs else None
    if options.perplexity is not None:
        if route is None:
            result |= {"perplexity": None, "reason": abilities.no_logprobs}
        else:
            result |= _perplexity(options.perplexity, tokenizer, route, say)
    if options.recall is not None:
        result |= _recall(options.recall, tokenizer, endpoint, route, abilities.no_logprobs, seed, say)
    result |= measure_tasks(
        options,
        Route(
            tokenizer=tokenizer,
            seed=seed,
            # A server that ran already is fed as it was started, which is not known.
            chunk=result["chunk"] if backend.options.base_url is None else None,
            go_on=lambda ids, tokens: continuation(endpoint, ids, tokens),
            log_probs=route,
            no_log_probs=abilities.no_logprobs,
            say=say,
        ),
    )
    table = None
    if options.agreement is not None:
        pieces = agreement_pieces(options.agreement, tokenizer, documentation(), seed)
        result |= _continuations(options.agreement, pieces, tokenizer, endpoint, abilities, say)
        if route is None:
            result |= {"agreement_reason": abilities.no_logprobs}
        else:
            table = _next_tokens(options.agreement, pieces, tokenizer, endpoint, abilities, say)
    return Judged(result, table)


def _perplexity(
    options: PerplexityOptions,
    tokenizer: Tokenizer,
    log_probs: Callable[[Sequence[int]], list[float | None]],
    say: Say,
) -> dict[str, Any]:
    text = documentation() if options.text is None else _file(options.text)
    ids = tokenizer.encode(text)[: options.tokens]
    if len(ids) < 2:
        raise UsageError("quality.perplexity.text holds fewer than two tokens.")
    result = perplexity(
        ids,
        options.window,
        _stride(options),
        log_probs,
        tokenizer,
        lambda done, of: say(f"perplexity, window {done} of {of}"),
    )
    result["text_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return result


def _recall(
    options: RecallOptions,
    tokenizer: Tokenizer,
    endpoint: Endpoint,
    log_probs: Callable[[Sequence[int]], list[float | None]] | None,
    no_route: str,
    seed: int,
    say: Say,
) -> dict[str, Any]:
    result = recall(
        draw_items(options, tokenizer, documentation(), seed),
        lambda ids, tokens: continuation(endpoint, ids, tokens),
        log_probs,
        lambda done, of: say(f"recall, prompt {done} of {of}"),
    )
    return result if log_probs is not None else {**result, "recall_reason": no_route}


def _continuations(
    options: AgreementOptions,
    pieces: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    endpoint: Endpoint,
    abilities: Capabilities,
    say: Say,
) -> dict[str, Any]:
    def go_on(ids: Sequence[int], tokens: int) -> Sequence[int]:
        found = continuation_ids(endpoint, ids, tokens, abilities.return_token_ids)
        return tokenizer.encode(found) if isinstance(found, str) else found

    return continuations(
        [piece[: options.prompt_tokens] for piece in pieces],
        options.tokens,
        go_on,
        lambda done, of: say(f"greedy continuations, prompt {done} of {of}"),
    )


def _next_tokens(
    options: AgreementOptions,
    pieces: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    endpoint: Endpoint,
    abilities: Capabilities,
    say: Say,
) -> "pd.DataFrame":
    wanted = min(options.alternatives, abilities.prompt_alternatives)

    def distributions(ids: Sequence[int]) -> list[dict[int, float]]:
        return next_token_log_probs(endpoint, tokenizer, ids, wanted, abilities.return_token_ids)

    return next_tokens(
        pieces,
        options.tokens,
        distributions,
        lambda done, of: say(f"next-token distributions, text {done} of {of}"),
    )


def _stride(options: PerplexityOptions) -> int:
    return options.window if options.stride is None else options.stride


def _file(path: str) -> str:
    return Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
