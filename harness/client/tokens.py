"""How many tokens an answer has, and how many came with each event, by the rules of METRICS."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.client.outcome import Outcome
from harness.client.streams import Answer
from harness.core.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenCount:
    """n and its source ("usage", "ids" or "tokenizer"), and the tokens of each event (int64).

    by_tokenizer: the tokenizer's count of the whole text, for the agreement check. estimated: the stream does
    not tell which event brought how many, so they were mapped from the text.
    """

    total: int
    source: str
    by_tokenizer: int
    per_event: np.ndarray
    estimated: bool


def count_tokens(outcome: Outcome, tokenizer: Tokenizer) -> TokenCount:
    """Count once over the whole text; a count piece by piece would see other tokens than the model made."""
    answer = outcome.answer
    ids, offsets = tokenizer.encode_with_offsets(outcome.text)
    from_usage = outcome.usage_count("completion_tokens")
    if from_usage is not None and (from_usage > 0 or not answer.texts):
        total, source = from_usage, "usage"
    elif answer.ids:
        total, source = sum(answer.ids.values()), "ids"
    else:
        total, source = len(ids), "tokenizer"
    known = _stated(answer)
    if known is not None:
        return TokenCount(total, source, len(ids), known, estimated=False)
    mapped = map_offsets([end for _, end in offsets], list(map(len, answer.texts)), total)
    return TokenCount(total, source, len(ids), mapped, estimated=True)


def _stated(answer: Answer) -> np.ndarray | None:
    """Tokens per event where the stream tells: by ids, or by a running usage, in every event."""
    if len(answer.ids) == len(answer.texts):
        return np.array(list(answer.ids.values()), dtype=np.int64)
    if len(answer.stated) < len(answer.texts):
        return None
    counts = np.diff(list(answer.stated.values()), prepend=0)
    return None if (counts < 0).any() else counts


def map_offsets(token_ends: Sequence[int], event_lengths: Sequence[int], total: int) -> np.ndarray:
    """Tokens of each event (int64): a token belongs to the event that brought its last character.

    token_ends: offset in characters where each token of the whole text ends, ascending. event_lengths:
    characters of each event. total: what they must add up to; where the tokenizer sees another number of
    tokens than that, the running count is scaled, so that it starts at 0 and ends at `total`.
    """
    if not len(event_lengths):
        return np.empty(0, dtype=np.int64)
    if len(token_ends):
        seen = np.asarray(token_ends).searchsorted(np.cumsum(event_lengths), side="right")
    else:  # no text at all: ids are missing too, so the events share the tokens evenly
        seen = np.arange(1, len(event_lengths) + 1)
    most = seen[-1]
    if most == total:
        running = seen
    else:
        running = np.rint(total * seen / most).astype(np.int64) if most else np.full(len(seen), total)
    counts = running.copy()
    counts[1:] -= running[:-1]
    return counts
