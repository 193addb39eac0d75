"""What TensorRT-LLM tells at /metrics, under the common names: JSON, one entry for each step, each told only once.

Names from its documentation (`trtllm-serve`, "Metrics Endpoint") and its own serialisation of `IterationStats`.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from harness.core.metric_names import (
    ACCEPTED_TOKENS,
    DRAFTED_TOKENS,
    KV_BLOCK_TOKENS,
    KV_RESERVED_BYTES,
    KV_USED_BYTES,
    PREEMPTIONS,
    PREFIX_HIT_TOKENS,
    PREFIX_QUERY_TOKENS,
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
)

# Counted anew in every step: (part of an entry, its name, ours).
_PER_STEP = (
    ("inflightBatchingStats", "numPausedRequests", PREEMPTIONS),
    ("specDecodingStats", "numDraftTokens", DRAFTED_TOKENS),
    ("specDecodingStats", "numAcceptedTokens", ACCEPTED_TOKENS),
)


class StepsSeen:
    """Everything a server has told so far; it forgets an entry as soon as somebody has read it.

    token_bytes: KV bytes of one token, all layers and GPUs; None where they are not known, which leaves bytes out.
    """

    def __init__(self, token_bytes: float | None) -> None:
        self._token_bytes = token_bytes
        self._lasting: dict[str, float] = {}

    def read(self, body: str) -> dict[str, float]:
        """Common names after one more look. Gauges are those of the last step, and absent where there was none.

        A server that made no step since the last look is idle, or in the middle of a long step: it does not say.
        """
        gauges: dict[str, float] = {}
        for step in _steps(body):
            gauges = self._gauges(step)
            self._count(step)
        return {**self._lasting, **gauges}

    def _gauges(self, step: dict[str, Any]) -> dict[str, float]:
        found = {
            ours: float(step[theirs])
            for theirs, ours in (
                ("numActiveRequests", REQUESTS_RUNNING),
                ("numQueuedRequests", REQUESTS_WAITING),
            )
            if theirs in step
        }
        cache = step.get("kvCacheStats") or {}
        if self._token_bytes is not None and "usedNumBlocks" in cache:
            block = cache["tokensPerBlock"] * self._token_bytes
            found[KV_USED_BYTES] = cache["usedNumBlocks"] * block
            self._lasting[KV_RESERVED_BYTES] = cache["maxNumBlocks"] * block
            self._lasting[KV_BLOCK_TOKENS] = float(cache["tokensPerBlock"])
        return found

    def _count(self, step: dict[str, Any]) -> None:
        cache = step.get("kvCacheStats") or {}
        if "reusedBlocks" in cache:  # since the server began
            found, missed = cache["reusedBlocks"], cache.get("missedBlocks", 0)
            self._lasting[PREFIX_HIT_TOKENS] = float(found * cache["tokensPerBlock"])
            self._lasting[PREFIX_QUERY_TOKENS] = float((found + missed) * cache["tokensPerBlock"])
        for part, theirs, ours in _PER_STEP:
            value = (step.get(part) or {}).get(theirs)
            if value is not None:
                self._lasting[ours] = self._lasting.get(ours, 0.0) + value


def _steps(body: str) -> Iterator[dict[str, Any]]:
    try:
        entries = orjson.loads(body)
    except orjson.JSONDecodeError:
        return
    if isinstance(entries, list):
        yield from (entry for entry in entries if isinstance(entry, dict))
