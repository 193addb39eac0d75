import re
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from harness.core.requests import Plan, PlannedRequest
from harness.core.tokenizer import Tokenizer
from tests.support.workload_options import workload_options
from workloads.chunks import draw_ranks, popularity
from workloads.facts import codes_in, draw_facts
from workloads.registry import draw_plan
from workloads.streams import Stream

FACT = re.compile(r"The access code of project ([A-Z][A-Za-z ]+) is ([0-9]{5})\.")
DOCUMENT = re.compile(r"^Document (\d+):\n", re.MULTILINE)


def drawn(tokenizer: Tokenizer, **overrides: object) -> Plan:
    return draw_plan(workload_options("rag", **overrides), tokenizer, seed=5, warmup=2, context_length=4096)


def question_of(request: PlannedRequest) -> str:
    return request.messages[-1]["content"]


def chunks_of(request: PlannedRequest) -> dict[int, str]:
    context = (
        question_of(request).split("\n\nFurther context:\n")[0].split("\n\nAnswer from the documents")[0]
    )
    parts = DOCUMENT.split(context)[1:]
    return {int(number): text.strip() for number, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_the_first_drawn_rank_follows_zipf(exponent: float) -> None:
    probabilities = popularity(50, exponent)
    law = np.array([1 / r**exponent for r in range(1, 51)])
    assert np.allclose(probabilities, law / law.sum())
    draws = 5000
    counts = np.bincount(
        [draw_ranks(Stream(0, "z", i), probabilities, 1)[0] for i in range(draws)], minlength=50
    )
    assert stats.chisquare(counts, draws * law / law.sum()).pvalue > 1e-4


def test_planted_codes_occur_nowhere_else() -> None:
    assert codes_in("a 1234567 b 99999, 12 and x54321y") == {"12345", "23456", "34567", "99999", "54321"}
    taken = {str(code) for code in range(10_000, 54_000)}
    facts = draw_facts(Stream(0, "f"), 500, taken)
    assert all(int(fact.code) >= 54_000 for fact in facts)
    assert len({fact.code for fact in facts}) == len({fact.name for fact in facts}) == 500


def test_later_ranks_follow_the_law_without_those_already_drawn() -> None:
    probabilities = popularity(4, 1.0)
    pairs = Counter(tuple(draw_ranks(Stream(1, "z", i), probabilities, 2)) for i in range(6000))
    possible = [(a, b) for a in range(4) for b in range(4) if a != b]
    expected = [6000 * probabilities[a] * probabilities[b] / (1 - probabilities[a]) for a, b in possible]
    assert sum(pairs[pair] for pair in possible) == 6000
    assert stats.chisquare([pairs[pair] for pair in possible], expected).pvalue > 1e-4


def test_chunks_of_a_query_are_distinct_and_popular_first(default_plans: dict[str, Plan]) -> None:
    for request in default_plans["rag"].requests:
        ranks = [int(rank) for rank in request.tags["chunks"].split(",")]
        assert ranks == sorted(set(ranks)) and len(ranks) == 4
        assert list(chunks_of(request)) == [rank + 1 for rank in ranks]


def test_a_chunk_is_the_same_text_whenever_it_is_drawn(tokenizer: Tokenizer) -> None:
    texts: dict[int, set[str]] = {}
    for request in drawn(tokenizer, requests=60, chunks=20).requests:
        for number, text in chunks_of(request).items():
            texts.setdefault(number, set()).add(text)
    assert len(texts) == 20
    assert all(len(seen) == 1 for seen in texts.values())
    assert len({text for seen in texts.values() for text in seen}) == 20


def test_the_answer_stands_at_its_depth_among_distractors(
    tokenizer: Tokenizer, default_plans: dict[str, Plan]
) -> None:
    for request in (*default_plans["rag"].requests, *default_plans["rag"].warmup):
        (code,) = request.expected
        chunks = list(chunks_of(request).values())
        facts = [FACT.findall(chunk) for chunk in chunks]
        assert [len(found) for found in facts] == [1, 1, 1, 1]  # one fact a chunk, three of them distractors
        names = [found[0][0] for found in facts]
        codes = [found[0][1] for found in facts]
        assert len(set(names)) == len(set(codes)) == 4
        asked = request.tags["answer_chunk"]
        assert codes[asked] == code
        assert question_of(request).endswith(f"What is the access code of project {names[asked]}?")
        text = tokenizer.render_chat(request.messages)
        assert text.count(code) == 1
        planted = text.index(f"The access code of project {names[asked]} is")
        ids, offsets = tokenizer.encode_with_offsets(text)
        token = next(i for i, (_, end) in enumerate(offsets) if end > planted)
        assert abs(request.tags["depth"] - token / len(ids)) <= 1.5 / len(ids)


def test_answers_come_from_every_place(tokenizer: Tokenizer) -> None:
    counts = Counter(request.tags["answer_chunk"] for request in drawn(tokenizer, requests=60).requests)
    assert stats.chisquare([counts[place] for place in range(4)]).pvalue > 1e-4


def test_prefixes_are_shared_more_when_popular_chunks_come_first(tokenizer: Tokenizer) -> None:
    def shared(**overrides: object) -> float:
        plan = drawn(tokenizer, requests=30, chunks=40, prompt_tokens=None, **overrides)
        return float(np.mean([request.tags["shared_prefix_share"] for request in plan.requests]))

    popular, as_drawn, alike = shared(), shared(order="as_drawn"), shared(order="as_drawn", zipf_exponent=0.0)
    assert popular > as_drawn > alike


def test_lengths_are_exact_or_natural(tokenizer: Tokenizer, default_plans: dict[str, Plan]) -> None:
    assert {request.prompt_tokens for request in default_plans["rag"].requests} == {640}
    natural = drawn(tokenizer, requests=10, prompt_tokens=None).requests
    assert all("Further context" not in question_of(request) for request in natural)
    assert len({request.prompt_tokens for request in natural}) > 1
    for request in natural:
        for text in chunks_of(request).values():
            assert 90 <= len(tokenizer.encode(text)) <= 130  # chunk_tokens: 120, about
