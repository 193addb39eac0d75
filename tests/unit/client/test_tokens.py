"""Counting tokens by the rules of the metrics."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.exchanges import RawExchange
from harness.client.outcome import Outcome
from harness.client.streams import Answer
from harness.client.tokens import count_tokens, map_offsets
from harness.core.tokenizer import Tokenizer
from tests.support.client_jobs import tiny_tokenizer, tokens_by_regex


def count(events: list[tuple[Any, ...]], usage: dict[str, Any] | None = None) -> tuple[Any, ...]:
    answer = Answer(texts=[text for text, _, _ in events], usage=usage)
    answer.ids = {n: len(ids) for n, (_, ids, _) in enumerate(events) if ids}
    answer.stated = {n: stated for n, (_, _, stated) in enumerate(events) if stated is not None}
    outcome = Outcome(RawExchange(0), answer)
    found = count_tokens(outcome, Tokenizer.from_folder(tiny_tokenizer()))
    assert found.by_tokenizer == tokens_by_regex(outcome.text)
    return found.total, found.source, found.per_event.tolist(), found.estimated


@pytest.mark.parametrize(
    ("events", "usage", "expected"),
    [
        ([(" word", [], None)] * 3, {"completion_tokens": 3}, (3, "usage", [1, 1, 1], True)),
        ([(" word", [], None)] * 3, None, (3, "tokenizer", [1, 1, 1], True)),
        ([(" word", [1], None)] * 3, None, (3, "ids", [1, 1, 1], False)),
        ([("", [1], None), ("ab", [2, 3], None)], {"completion_tokens": 3}, (3, "usage", [1, 2], False)),
        ([("ab", [], 2), ("c", [], 3)], {"completion_tokens": 3}, (3, "usage", [2, 1], False)),
        ([("ab", [], 2), ("c", [], None)], {"completion_tokens": 3}, (3, "usage", [2, 1], True)),
        (
            [("ab", [], 3), ("c", [], 2)],
            {"completion_tokens": 3},
            (3, "usage", [2, 1], True),
        ),  # it cannot run back
        ([(" wo", [], None), ("rd other", [], None)], None, (2, "tokenizer", [0, 2], True)),
        ([(" wo", [], None), ("rd", [], None)], {"completion_tokens": 1}, (1, "usage", [0, 1], True)),
        (
            [("abc", [], None)],
            {"completion_tokens": 4},
            (4, "usage", [4], True),
        ),  # an end-of-text without text
        ([("a", [], None)], {"completion_tokens": 0}, (1, "tokenizer", [1], True)),  # usage that cannot be
        ([], {"completion_tokens": 0}, (0, "usage", [], False)),
        ([], None, (0, "tokenizer", [], False)),
    ],
)
def test_which_count_is_used(
    events: list[Any], usage: dict[str, Any] | None, expected: tuple[Any, ...]
) -> None:
    assert count(events, usage) == expected


def by_hand(ends: list[int], lengths: list[int]) -> list[int]:
    """Give each token to the first event by whose end it is complete, one by one."""
    counts = [0] * len(lengths)
    for end in ends:
        total = 0
        for number, length in enumerate(lengths):
            total += length
            if total >= end:
                counts[number] += 1
                break
    return counts


@given(data=st.data(), tokens=st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_a_token_belongs_to_the_event_that_completes_it(data: st.DataObject, tokens: list[int]) -> None:
    ends = [sum(tokens[: number + 1]) for number in range(len(tokens))]
    cuts = sorted(data.draw(st.lists(st.integers(0, ends[-1]), max_size=6)))
    lengths = [after - before for before, after in zip([0, *cuts], [*cuts, ends[-1]], strict=True)]
    assert map_offsets(ends, lengths, len(tokens)).tolist() == by_hand(ends, lengths)


@given(
    ends=st.lists(st.integers(1, 40), max_size=20).map(sorted),
    lengths=st.lists(st.integers(0, 9), max_size=12),
    total=st.integers(0, 60),
)
def test_events_always_add_up_to_the_total(ends: list[int], lengths: list[int], total: int) -> None:
    mapped = map_offsets(ends, lengths, total).tolist()
    assert len(mapped) == len(lengths) and all(tokens >= 0 for tokens in mapped)
    assert sum(mapped) == (total if lengths else 0)
