import dataclasses
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.quality.options import QualityOptions, ReasoningOptions
from harness.quality.reasoning import Item, draw_reasoning
from harness.quality.tasks import check_tasks
from tests.support.model import embedded_tokenizer

_TOKENIZER = embedded_tokenizer()
_LONGEST_WORD = 12  # tokens
_OPTIONS = ReasoningOptions(grades=[1, 2], items=3, choices=3, prompt_tokens=72)


def options(**changes: Any) -> ReasoningOptions:
    return dataclasses.replace(_OPTIONS, **changes)


def _of(kind: str, items: list[Item]) -> list[Item]:
    return [item for item in items if item.kind == kind]


@given(st.integers(1, 6), st.integers(2, 3), st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_a_chain_of_variables_has_as_many_assignments_as_its_grade_and_one_value(
    grade: int, choices: int, seed: int
):
    for item in _of("variables", draw_reasoning(options(grades=[grade], choices=choices), _TOKENIZER, seed)):
        lines, *_, ask = item.prompt.split("\n\n")
        given_as = dict(line.split(" = ") for line in lines.splitlines())
        assert len(given_as) == choices * grade  # no name is given twice
        (name,) = re.findall(r"The value of (\w) is", ask)
        assignments = 1
        while given_as[name].isalpha():
            name = given_as[name]
            assignments += 1
        assert assignments == grade
        assert f" {given_as[name]}" == item.answers[0]
        values = {f" {value}" for value in given_as.values() if value.isdigit()}
        assert values == set(item.answers)
        assert len(item.answers) == choices
        assert all(item.prompt.count(answer.strip()) == 1 for answer in item.answers)


@given(st.integers(1, 6), st.integers(2, 8), st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_a_sum_has_as_many_steps_as_its_grade_and_one_result(grade: int, choices: int, seed: int):
    drawn = options(grades=[min(grade, 1)], choices=2), options(grades=[grade], choices=min(choices, 3))
    for wanted in drawn:
        for item in _of("arithmetic", draw_reasoning(wanted, _TOKENIZER, seed)):
            name, expression = item.prompt.splitlines()[0].split(" = ")
            assert item.prompt.endswith(f"\n\nThe value of {name} is")
            assert len(re.findall(r"[+-]", expression)) == item.grade
            assert int(item.answers[0]) == eval(expression)  # the test's own digits and signs
            assert len(set(item.answers)) == len(item.answers) == wanted.choices
            assert all(10 <= int(answer) <= 99 for answer in item.answers)


@given(st.integers(1, 200), st.integers(0, 99))
@settings(deadline=None, max_examples=20)
@example(tokens=132, seed=78)  # a word's first letter would be left of the last one
def test_words_fill_a_prompt_to_its_length_and_give_nothing_away(tokens: int, seed: int):
    for item in draw_reasoning(options(grades=[1], items=1, prompt_tokens=tokens), _TOKENIZER, seed):
        given, *words, ask = item.prompt.split("\n\n")
        missing = tokens - len(_TOKENIZER.encode(item.prompt))
        assert -_LONGEST_WORD <= missing <= 3 or not words
        assert not re.search(r"[0-9=]|\b\w\b", "".join(words))
        assert re.fullmatch(r"The value of \w is", ask)
        assert re.search(r" = \d", given)


def test_items_depend_on_the_seed_and_not_on_how_many_are_drawn():
    few, many = (draw_reasoning(options(items=n), _TOKENIZER, 5) for n in (2, 6))
    assert list(few) == [item for i, item in enumerate(many) if i % 6 < 2]
    assert draw_reasoning(options(items=2), _TOKENIZER, 6) != few
    assert draw_reasoning(options(items=2), _TOKENIZER, 5) == few


def test_the_right_answer_is_no_habit_of_its_place():
    items = draw_reasoning(options(items=60, choices=2), _TOKENIZER, 0)
    first = [
        min(item.answers, key=lambda answer: item.prompt.index(answer.strip())) == item.answers[0]
        for item in _of("variables", items)
    ]
    assert 0.3 < sum(first) / len(first) < 0.7
    larger = [int(item.answers[0]) > int(item.answers[1]) for item in _of("arithmetic", items)]
    assert 0.3 < sum(larger) / len(larger) < 0.7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"items": 0}, r"quality\.reasoning\.items=0 must be at least 1"),
        ({"grades": []}, r"quality\.reasoning\.grades=\[\]: at least one"),
        ({"grades": [0, 1]}, r"grades=\[0, 1\]: at least one, each 1 or more"),
        ({"grades": [40]}, r"grades=\[40\]: use at most 12"),
        ({"choices": 1}, r"choices=1: with chains of 2 use 2 to 12"),
        ({"grades": [5], "choices": 5}, r"choices=5: with chains of 5 use 2 to 4"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_starts(changes: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        check_tasks(QualityOptions(reasoning=options(**changes)), _TOKENIZER, 0, 1000)


def test_a_context_that_is_too_short_is_said_too():
    with pytest.raises(UsageError, match=r"quality=reasoning: .* the context of 20"):
        check_tasks(QualityOptions(reasoning=_OPTIONS), _TOKENIZER, 0, 20)
