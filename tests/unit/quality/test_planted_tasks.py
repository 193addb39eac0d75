"""Questions over retrieved chunks and summaries with planted facts: what is asked, and how answers are counted."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.quality.options import QualityOptions, RagQualityOptions, SummaryQualityOptions
from harness.quality.rag import check_rag, draw_rag, found_in_answers
from harness.quality.summary import check_summary, draw_summary, found_in_summaries
from harness.quality.tasks import check_tasks
from tests.support.model import embedded_tokenizer

_TOKENIZER = embedded_tokenizer()
_RAG = RagQualityOptions(prompts=2, chunks=30, chunk_tokens=64, chunks_per_query=3, answer_tokens=32)
_SUMMARY = SummaryQualityOptions(documents=2, prompt_tokens=300, facts=3, answer_tokens=48)
_FACT = re.compile(r"access code of project ([\w ]+) is (\d+)\.")


def rag(**changes: Any) -> RagQualityOptions:
    return dataclasses.replace(_RAG, **changes)


def summary(**changes: Any) -> SummaryQualityOptions:
    return dataclasses.replace(_SUMMARY, **changes)


@given(st.integers(2, 5), st.integers(0, 999))
@settings(deadline=None, max_examples=12)
def test_a_question_has_one_answer_which_stands_once_in_its_prompt(chunks: int, seed: int):
    for item in draw_rag(rag(chunks_per_query=chunks), _TOKENIZER, seed):
        text = _TOKENIZER.decode(item.ids)
        facts = dict(_FACT.findall(text))
        (asked,) = re.findall(r"What is the access code of project ([\w ]+)\?", text)
        assert facts[asked] == item.code
        assert text.count(item.code) == 1
        assert sorted(facts.values()) == sorted((item.code, *item.others))
        assert len(set(facts.values())) == chunks
        whole = [_TOKENIZER.decode([*item.choice.ids, *option]) for option in item.choice.options]
        assert whole == [
            f"{text}The access code of project {asked} is {code}" for code in (item.code, *item.others)
        ]


@given(st.integers(2, 4), st.integers(0, 999))
@settings(deadline=None, max_examples=12)
def test_every_fact_of_a_document_stands_in_it_once(facts: int, seed: int):
    for item in draw_summary(summary(facts=facts), _TOKENIZER, seed):
        text = _TOKENIZER.decode(item.ids)
        assert len(item.ids) == 300
        assert len(set(item.codes)) == len(item.choices) == facts
        names = {code: name for name, code in _FACT.findall(text)}
        for code, choice in zip(item.codes, item.choices, strict=True):
            assert text.count(code) == 1
            first, *others = [_TOKENIZER.decode([*choice.ids, *option]) for option in choice.options]
            assert first == f"{text}The access code of project {names[code]} is {code}"
            assert {other[-5:] for other in others} == set(item.codes) - {code}


def test_items_depend_on_the_seed_and_not_on_how_many_are_drawn():
    assert draw_rag(rag(prompts=4), _TOKENIZER, 3)[:2] == draw_rag(_RAG, _TOKENIZER, 3)
    assert draw_rag(_RAG, _TOKENIZER, 4) != draw_rag(_RAG, _TOKENIZER, 3)
    assert draw_summary(summary(documents=4), _TOKENIZER, 3)[:2] == draw_summary(_SUMMARY, _TOKENIZER, 3)
    assert draw_summary(_SUMMARY, _TOKENIZER, 4) != draw_summary(_SUMMARY, _TOKENIZER, 3)


def test_an_answer_is_right_where_it_names_its_code_and_no_other():
    items = draw_rag(rag(prompts=4), _TOKENIZER, 0)
    answers = iter(
        [
            f"The code is {items[0].code}.",
            "I do not know.",
            f"{items[2].others[0]}.",
            " ".join((items[3].code, *items[3].others)),
        ]
    )
    asked: list[tuple[Sequence[int], int]] = []

    def go_on(ids: Sequence[int], tokens: int) -> str:
        asked.append((ids, tokens))
        return next(answers)

    found = found_in_answers(items, 32, go_on)
    assert (found["rag_right"], found["rag"], found["rag_chance"]) == ([1, 0, 0, 0], 0.25, 1 / 3)
    assert asked == [(item.ids, 32) for item in items]


def test_a_summary_is_worth_the_share_of_its_facts():
    items = draw_summary(_SUMMARY, _TOKENIZER, 0)
    answers = iter([f"About {items[0].codes[2]} and {items[1].codes[0]}", ", ".join(items[1].codes)])
    found = found_in_summaries(items, 48, lambda ids, tokens: next(answers))
    assert found["summary_right"] == pytest.approx([1 / 3, 1])
    assert (found["summary"], found["summary_items"]) == (pytest.approx(2 / 3), 2)
    assert found["summary_interval"][0] < 2 / 3 < found["summary_interval"][1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": 0}, r"quality\.rag\.prompts=0 must be at least 1"),
        ({"chunks_per_query": 1}, r"chunks_per_query=1 must be at least 2"),
        ({"answer_tokens": 0}, r"answer_tokens=0"),
        ({"chunk_tokens": 20}, r"quality\.rag\.chunk_tokens=20 leaves no text"),
        ({"chunks": 2}, r"quality\.rag\.chunks=2: use a whole number of at least 3"),
        ({"answer_tokens": 900}, r"quality=rag: .* more than the context of 1000\. Lower quality\.rag\."),
    ],
)
def test_questions_that_cannot_be_asked(changes: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        check_tasks(QualityOptions(rag=rag(**changes)), _TOKENIZER, 0, 1000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"documents": 0}, r"quality\.summary\.documents=0 must be at least 1"),
        ({"facts": 1}, r"quality\.summary\.facts=1 must be at least 2"),
        ({"answer_tokens": 0}, r"answer_tokens=0"),
        ({"prompt_tokens": 60}, r"quality\.summary\.prompt_tokens=60 is too short"),
        ({"prompt_tokens": 990}, r"quality=summary: .* more than the context of 1000"),
    ],
)
def test_summaries_that_cannot_be_asked_for(changes: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        check_tasks(QualityOptions(summary=summary(**changes)), _TOKENIZER, 0, 1000)


def test_what_can_be_asked_passes():
    check_rag(_RAG)
    check_summary(_SUMMARY)
    check_tasks(QualityOptions(rag=_RAG, summary=_SUMMARY), _TOKENIZER, 0, 1000)
