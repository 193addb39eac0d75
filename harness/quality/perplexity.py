"""Perplexity of real text through a running server, and bits per byte.

exp(−Σ log p / N) with natural logarithms over the N predicted tokens (the first token of a window is not
predicted). A long text is cut into windows that overlap by window − stride tokens; a token that an earlier window
has predicted is not counted again. The interval is a bootstrap over windows (Efron 1979, percentile method):
tokens of one window share their context, so they are no independent samples.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from harness.core.errors import EndpointError
from harness.core.tokenizer import Tokenizer

# Takes the ids of a window; returns log p of each token given those before it (the first entry means nothing).
LogProbs = Callable[[Sequence[int]], Sequence[float | None]]

_RESAMPLES = 2000
_COVERAGE = 0.95
_PARTS = 8  # of a window, whose perplexity is also told apart


@dataclass(frozen=True, slots=True)
class Window:
    """Half-open range of positions fed together; predictions count from `scored_from` on."""

    start: int
    end: int
    scored_from: int


def windows(length: int, window: int, stride: int) -> list[Window]:
    """Windows over `length` tokens, each at most `window` long; together they predict each position once.

    Positions that begin an independent context (0, and with stride = window each window's first) are predicted by
    none. A last window that could predict nothing is left out.
    """
    found = []
    predicted_until = 0
    for start in range(0, max(length - 1, 0), stride):
        end = min(start + window, length)
        scored_from = max(start + 1, predicted_until)
        if scored_from < end:
            found.append(Window(start, end, scored_from))
        predicted_until = end
        if end == length:
            break
    return found


def perplexity(
    ids: Sequence[int],
    window: int,
    stride: int,
    log_probs: LogProbs,
    tokenizer: Tokenizer,
    on_window: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Measure and summarise; `on_window(done, of)` is told the progress.

    Returns perplexity, its 95 % interval, bits_per_byte, predicted_tokens, perplexity by the length of the context,
    and each window's sums, from which two runs over the same text can be compared window by window.
    """

    def text_bytes(beginning: Sequence[int]) -> int:
        # Counted from the start: a piece out of the middle may begin inside a character, or lose a leading space.
        return len(tokenizer.decode(beginning).encode())

    plan = windows(len(ids), window, stride)
    sums, counts, byte_counts = [], [], []
    places = Places(window)
    for done, part in enumerate(plan):
        on_window(done, len(plan))
        values = log_probs(ids[part.start : part.end])
        scored = values[part.scored_from - part.start : part.end - part.start]
        if len(scored) != part.end - part.scored_from or any(
            v is None or not math.isfinite(v) for v in scored
        ):
            raise EndpointError(
                "The server's prompt log-probabilities are incomplete (one finite number per prompt token is needed)."
            )
        places.add(part.scored_from - part.start, scored)
        sums.append(-float(np.sum(np.asarray(scored, dtype=np.float64))))
        counts.append(len(scored))
        byte_counts.append(text_bytes(ids[: part.end]) - text_bytes(ids[: part.scored_from]))
    on_window(len(plan), len(plan))
    return {
        "perplexity": math.exp(sum(sums) / sum(counts)),
        "perplexity_interval": bootstrap_interval(sums, counts),
        "bits_per_byte": sum(sums) / math.log(2) / sum(byte_counts),
        "predicted_tokens": sum(counts),
        "window": window,
        "stride": stride,
        "window_nll": sums,
        "window_tokens": counts,
        "perplexity_by_position": places.parts(),
    }


class Places:
    """Sums of −log p by the place of a token in its window, which is the length of its context."""

    def __init__(self, window: int) -> None:
        self._nll = np.zeros(window)
        self._tokens = np.zeros(window, dtype=np.int64)

    def add(self, first: int, log_probs: Sequence[float | None]) -> None:
        """log p of the tokens at the places from `first` on."""
        self._nll[first : first + len(log_probs)] -= np.asarray(log_probs, dtype=np.float64)
        self._tokens[first : first + len(log_probs)] += 1

    def parts(self) -> list[dict[str, Any]]:
        """Perplexity of each eighth of the window in which anything was predicted, by the context's length."""
        edges = np.linspace(0, len(self._tokens), min(_PARTS, len(self._tokens)) + 1).astype(int)
        return [
            {
                "from": int(start),
                "to": int(end),
                "tokens": int(tokens),
                "perplexity": math.exp(self._nll[start:end].sum() / tokens),
            }
            for start, end in pairwise(edges)
            if (tokens := self._tokens[start:end].sum())
        ]


def bootstrap_interval(sums: Sequence[float], counts: Sequence[int]) -> list[float] | None:
    """95 % percentile interval of exp(Σ nll / Σ tokens) over resampled windows; None for fewer than two."""
    if len(sums) < 2:
        return None
    picks = np.random.default_rng(0).integers(0, len(sums), (_RESAMPLES, len(sums)))
    values = np.exp(np.asarray(sums)[picks].sum(axis=1) / np.asarray(counts)[picks].sum(axis=1))
    tail = (1 - _COVERAGE) / 2
    return [float(np.quantile(values, tail)), float(np.quantile(values, 1 - tail))]
