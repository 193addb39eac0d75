import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.quality.options import RecallOptions
from harness.quality.recall import Item, check_recall, draw_items, recall
from tests.support.model import embedded_tokenizer

_TOKENIZER = embedded_tokenizer()
_TEXT = "The river runs past the mill. Nobody counts the stones in it.\n" * 400


def _options(**changes: object) -> RecallOptions:
    values = {"lengths": [120], "depths": [0.0, 0.5, 1.0], "trials": 2, "facts": 1, "question_first": False}
    return RecallOptions(**{**values, **changes})  # type: ignore[arg-type]


@given(
    length=st.integers(200, 500),
    depth=st.floats(0, 1),
    facts=st.integers(1, 3),
    question_first=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_a_prompt_has_its_length_its_fact_and_ends_before_the_code(
    length: int, depth: float, facts: int, question_first: bool, seed: int
):
    options = _options(lengths=[length], depths=[depth], trials=1, facts=facts, question_first=question_first)
    (item,) = draw_items(options, _TOKENIZER, _TEXT, seed)
    text = _TOKENIZER.decode(item.ids)
    assert len(item.ids) == length
    assert text.count(f" is {item.code}.\n") == 1
    assert text.count("The access code of project") == facts + 1  # the last is the beginning of the answer
    stem = text[text.rindex("The access code") :]
    assert f"{stem} {item.code}." in text
    assert _TOKENIZER.decode([*item.ids, *item.code_ids]).endswith(f"{stem} {item.code}")
    assert text.startswith("Remember this question: ") is question_first
    if facts == 1:
        assert item.depth <= depth + 1e-9 or item.depth == pytest.approx(depth, abs=0.1)


def test_the_fact_stands_where_it_was_asked_for():
    items = draw_items(_options(lengths=[2000], trials=3), _TOKENIZER, _TEXT, 0)
    for item in items:
        assert item.wanted_depth - 0.05 <= item.depth <= item.wanted_depth


def test_items_depend_on_the_seed_alone():
    few = draw_items(_options(lengths=[600], trials=1), _TOKENIZER, _TEXT, 5)
    many = draw_items(_options(lengths=[600, 900], trials=4), _TOKENIZER, _TEXT, 5)
    assert few == many[: len(few)]
    assert draw_items(_options(lengths=[600], trials=1), _TOKENIZER, _TEXT, 6) != few


def test_right_answers_and_log_probabilities_are_counted_by_cell():
    items = [Item((1, 2), (3, 4), f"{10000 + i}", 100 * (1 + i // 2), 0.5, 0.5) for i in range(4)]
    answers = iter([" 10000, and so on", "10001", " 10003", " 1000"])

    def log_probs(ids: Sequence[int]) -> list[float | None]:
        return [None, -9.0, -1.0, -0.5]

    result = recall(items, lambda ids, tokens: next(answers), log_probs)
    assert (result["recall"], result["recall_items"], result["recall_right"]) == (0.5, 4, [1, 1, 0, 0])
    assert (result["recall_log_prob"], result["recall_chance"]) == (-1.5, 0.0)
    assert [(c["length"], c["right"], c["of"]) for c in result["recall_cells"]] == [(100, 2, 2), (200, 0, 2)]
    # Wilson (1927), worked by hand for 2 of 4 with z = 1.959964.
    z2 = 1.959963985**2
    middle, half = (2 + z2 / 2) / (4 + z2), math.sqrt(z2) / (4 + z2) * math.sqrt(1 + z2 / 4)
    assert result["recall_interval"] == pytest.approx([middle - half, middle + half], rel=1e-6)


@pytest.mark.parametrize(("facts", "chance"), [(1, 0.0), (2, 1 / 2), (4, 1 / 4)])
def test_of_several_facts_any_may_be_copied(facts: int, chance: float):
    items = draw_items(_options(lengths=[300], trials=8, facts=facts), _TOKENIZER, _TEXT, 0)
    found = recall(items, lambda ids, tokens: f" {items[0].code}", None)
    assert found["recall_chance"] == pytest.approx(chance)


def test_without_a_route_only_the_log_probability_is_missing():
    item = Item((1,), (2,), "12345", 10, 0.5, 0.5)
    result = recall([item], lambda ids, tokens: " 12345", None)
    assert (result["recall"], result["recall_log_prob"]) == (1.0, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trials": 0}, r"trials=0 must be at least 1"),
        ({"facts": 0}, r"facts=0"),
        ({"lengths": []}, "at least one value"),
        ({"depths": [0.5, 1.5]}, "depths run from 0 to 1"),
        ({"lengths": [64, 1000]}, r"1000 tokens and the answer do not fit a context of 1007.*at most 999"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_starts(changes: dict[str, object], words: str):
    with pytest.raises(UsageError, match=words):
        check_recall(_options(**changes), 1007)


def test_lengths_without_room_are_refused():
    with pytest.raises(UsageError, match="have no room for 1 facts"):
        draw_items(_options(lengths=[20]), _TOKENIZER, _TEXT, 0)
    with pytest.raises(UsageError, match="the text has"):
        draw_items(_options(lengths=[10**6]), _TOKENIZER, _TEXT, 0)
