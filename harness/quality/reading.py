"""Whether a task reads the KV cache that it judges: in one pass a model sees what it computes, not what was kept."""

import dataclasses
from collections.abc import Iterator

from backends.base import Backend
from harness.core.errors import UsageError
from harness.core.exactness import evicts, packs
from harness.core.tokenizer import Tokenizer
from harness.quality.options import QualityOptions
from harness.quality.rag import draw_rag
from harness.quality.reasoning import draw_reasoning
from harness.quality.scoring import Choice


def check_reads_cache(options: QualityOptions, backend: Backend, tokenizer: Tokenizer, seed: int) -> None:
    """Raise UsageError for a task whose log-probabilities would be the exact cache's, whatever the setting.

    So they are where the longest text of the task is fed in one chunk. Nothing is refused where smaller chunks would
    show no more: the cache is exact, or log-probabilities do not come through it, or it is not known how the server
    is fed.
    """
    engine = backend.options
    chunk = engine.prefill_chunk if options.chunk is None else options.chunk
    if chunk is None or engine.base_url is not None or not _would_show(backend):
        return
    for task, tokens in _texts(options, tokenizer, seed):
        if tokens <= chunk:
            feeding = "quality.chunk" if options.chunk is not None else "backend.prefill_chunk"
            raise UsageError(
                f"quality={task} looks at {tokens} tokens at a time and {feeding}={chunk} feeds them in one pass, "
                "which never reads the KV cache, so that every setting of it would look lossless. "
                f"Use quality.chunk={max(1, tokens // 2)} or less."
            )


def _would_show(backend: Backend) -> bool:
    able, engine = backend.capabilities(), dataclasses.asdict(backend.options)
    if not able.prompt_logprobs:
        return False
    return (able.logprobs_see_kv and packs(engine)) or (able.logprobs_see_eviction and evicts(engine))


def _texts(options: QualityOptions, tokenizer: Tokenizer, seed: int) -> Iterator[tuple[str, int]]:
    """Tasks that are asked for, and the tokens before the last place of which a probability is told."""
    if options.perplexity is not None:
        yield "perplexity", min(options.perplexity.window, options.perplexity.tokens) - 1
    if options.recall is not None:
        yield "recall", max(options.recall.lengths)
    if options.rag is not None:
        yield "rag", _longest([item.choice for item in draw_rag(options.rag, tokenizer, seed)])
    if options.summary is not None:
        yield "summary", options.summary.prompt_tokens
    if options.reasoning is not None:
        items = draw_reasoning(options.reasoning, tokenizer, seed)
        yield "reasoning", _longest([item.choice for item in items])
    if options.agreement is not None:
        yield "agreement", options.agreement.prompt_tokens + options.agreement.tokens - 1


def _longest(choices: list[Choice]) -> int:
    return max(len(item.ids) for item in choices)
