"""How many tokens an answer has, and how many came with each event, by the rules of METRICS."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from harness.client.outcome import Outcome, TextEvent
from harness.core.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenCount:
    """n and its source ("usage", "ids" or "tokenizer"), and the tokens of each event.

    by_tokenizer: the tokenizer's count of the whole text, for the agreement check. estimated: the stream does
    not tell which event brought how many, so they were mapped from the text.
    """

    total: int
    source: str
    by_tokenizer: int
    per_event: list[int]
    estimated: bool


def count_tokens(outcome: Outcome, tokenizer: Tokenizer) -> TokenCount:
    """Count once over the whole text; a count piece by piece would see other tokens than the model made."""
    events = outcome.events
    ids, offsets = tokenizer.encode_with_offsets(outcome.text)
    from_ids = sum(len(event.ids) for event in events)
    from_usage = outcome.usage_count("completion_tokens")
    if from_usage is not None and (from_usage > 0 or not events):
        total, source = from_usage, "usage"
    elif from_ids:
        total, source = from_ids, "ids"
    else:
        total, source = len(ids), "tokenizer"
    known = _stated(events)
    if known is not None:
        return TokenCount(total, source, len(ids), known, estimated=False)
    mapped = map_offsets([end for _, end in offsets], [len(event.text) for event in events], total)
    return TokenCount(total, source, len(ids), mapped, estimated=True)


def _stated(events: list[TextEvent]) -> list[int] | None:
    """Tokens per event where the stream tells: by ids, or by a running usage, in every event."""
    if all(event.ids for event in events):
        return [len(event.ids) for event in events]
    counts = [event.usage_tokens for event in events if event.usage_tokens is not None]
    if len(counts) < len(events) or counts != sorted(counts):
        return None
    return [after - before for before, after in zip([0, *counts], counts, strict=False)]


def map_offsets(token_ends: list[int], event_lengths: list[int], total: int) -> list[int]:
    """Tokens of each event: a token belongs to the event that brought its last character.

    token_ends: offset in characters where each token of the whole text ends, ascending. event_lengths:
    characters of each event. total: what they must add up to; where the tokenizer sees another number of
    tokens than that, the running count is scaled, so that it starts at 0 and ends at `total`.
    """
    if not event_lengths:
        return []
    seen = [bisect_right(token_ends, position) for position in accumulate(event_lengths)]
    if not token_ends:  # no text at all: ids are missing too, so the events share the tokens evenly
        seen = list(range(1, len(event_lengths) + 1))
    most = seen[-1]
    running = [round(total * count / most) for count in seen] if most else [total] * len(seen)
    return [after - before for before, after in zip([0, *running], running, strict=False)]
