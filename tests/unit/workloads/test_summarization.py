from pathlib import Path

import pytest

from harness.core.requests import Plan
from harness.core.tokenizer import Tokenizer
from tests.support.workload_options import workload_options
from workloads.registry import draw_plan


def drawn(tokenizer: Tokenizer, **overrides: object) -> Plan:
    return draw_plan(
        workload_options("summarization", **overrides), tokenizer, seed=5, warmup=1, context_length=8192
    )


def test_facts_are_spread_over_the_document_at_the_stated_depths(
    tokenizer: Tokenizer, default_plans: dict[str, Plan]
) -> None:
    for request in default_plans["summarization"].requests:
        text = tokenizer.render_chat(request.messages)
        ids, offsets = tokenizer.encode_with_offsets(text)
        depths = [float(depth) for depth in request.tags["depths"].split(",")]
        assert len(depths) == len(request.expected) == request.tags["facts"] == 4
        assert depths == sorted(depths)
        for part, (code, depth) in enumerate(zip(request.expected, depths, strict=True)):
            assert text.count(code) == 1
            assert f" is {code}." in text
            planted = text.rindex("The access code of project", 0, text.index(code))
            token = next(i for i, (_, end) in enumerate(offsets) if end > planted)
            assert abs(depth - token / len(ids)) <= 1.5 / len(ids)
            assert part / 4 * 0.8 <= depth <= (part + 1) / 4 + 0.1  # one in each quarter, about


def test_the_instruction_comes_last_and_documents_begin_differently(default_plans: dict[str, Plan]) -> None:
    plan = default_plans["summarization"]
    contents = [request.messages[-1]["content"] for request in (*plan.requests, *plan.warmup)]
    assert all(content.endswith("together with its access code.") for content in contents)
    assert len({content[:4] for content in contents}) == len(contents)


@pytest.mark.parametrize("tokens", [512, 513, 2048, 8000])
def test_lengths_are_exact_up_to_the_limit(tokenizer: Tokenizer, tokens: int) -> None:
    for request in drawn(tokenizer, requests=2, prompt_tokens=tokens).requests:
        assert request.prompt_tokens == tokens
        assert all(code in request.messages[-1]["content"] for code in request.expected)


def test_no_facts_and_many_facts(tokenizer: Tokenizer) -> None:
    bare = drawn(tokenizer, requests=1, facts=0).requests[0]
    assert (bare.expected, bare.tags["depths"]) == ((), "")
    full = drawn(tokenizer, requests=1, facts=30).requests[0]
    assert len(set(full.expected)) == 30
    assert all(full.messages[-1]["content"].count(code) == 1 for code in full.expected)


@pytest.mark.parametrize(
    "text",
    [
        "漢字仮名交じりの長い文章です。" * 400,
        "one line without end " * 900,
        "tiny corpus, two words\n\nand end",
    ],
)
def test_any_text_carries_its_facts_at_any_length(tokenizer: Tokenizer, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    corpus = {"corpus__name": "folder", "corpus__path": str(tmp_path)}
    for tokens in (190, 200, 240, 300, 700):
        for request in drawn(tokenizer, requests=3, prompt_tokens=tokens, **corpus).requests:
            assert request.prompt_tokens == tokens
            assert all(
                request.messages[-1]["content"].count(f" is {code}.") == 1 for code in request.expected
            )


def test_documents_of_a_tiny_corpus_still_begin_differently(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a few words\nand some more\n\nof a very small corpus to read on and on")
    plan = drawn(tokenizer, requests=12, corpus__name="folder", corpus__path=str(tmp_path))
    assert len({request.messages[-1]["content"][:16] for request in plan.requests}) == 12
