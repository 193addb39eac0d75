"""Budgets by a prompt's attention, its class and the pool: weights, shares that fit, and no early return."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from backends.kvcompress.admission import Static
from backends.kvcompress.breadth import MASS, SAMPLED, breadth_of
from backends.kvcompress.model.decoder import Decoder
from backends.kvcompress.request import Request
from backends.kvcompress.scheduling import Scheduling, WorkloadClass, check_class, scheduling_of
from backends.kvcompress.shares import highest_level
from backends.kvcompress.store_torch import TorchStore
from harness.core.errors import UsageError
from tests.support.backends import endpoint, kvcompress
from tests.support.kv import spec
from tests.support.kv_engine import SCHEDULING, driven, load_tiny, sampling, tiny_llama
from tests.support.kv_play import attention_over, dense, play, stream

ASKED = {"evict": "h2o", "budget": {"tokens": 40}}
LONG = [place % 90 for place in range(150)]
CLASSES = {"other": WorkloadClass(4, 1.0), "rag": WorkloadClass(2, 1.0), "chat": WorkloadClass(4, 2.0)}
WEIGHING = Scheduling(headroom=0, tokens=100, least=0.5, most=2.0, classes=CLASSES)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return load_tiny(folder)


@pytest.mark.parametrize("tokens", [3, SAMPLED, 40])
def test_entries_that_hold_most_of_the_attention_are_those_of_dense_attention(tokens: int) -> None:
    of = stream(tokens, layers=1, query_heads=6, heads=2)
    given_to = dense(of, 0).view(2, 3, tokens, tokens)[:, :, -SAMPLED:].mean((1, 2))
    expected = []
    for head in given_to.tolist():
        held, count = 0.0, 0
        for share in sorted(head, reverse=True):
            held, count = held + share, count + 1
            if held >= MASS:
                break
        expected.append(count)
    found = breadth_of(of.queries[0, -17:], of.keys[0].transpose(0, 1))
    assert found == pytest.approx(sum(expected) / 2 / tokens**0.5)


def test_attention_to_one_entry_is_concentrated_and_equal_attention_is_broad() -> None:
    keys = torch.zeros(1, 50, 8)
    queries = torch.ones(8, 1, 8)
    assert breadth_of(queries, keys) == pytest.approx(
        0.9 * 50 / 50**0.5, rel=0.1
    )  # causal: the first of 8 sees 43
    keys[0, 3] = 100
    assert breadth_of(queries, keys) == pytest.approx(1 / 50**0.5)


def test_only_what_was_read_before_anything_was_evicted_is_measured() -> None:
    store = TorchStore(3, 2, 8, 1 << 20, torch.float32, torch.device("cpu"))
    attention = attention_over(store, layers=3)
    attention._measures = True
    of = stream(96, layers=3)
    rows = [attention.open(spec(**kv), 96) for kv in ({}, {"evict": "knorm", "budget": {"tokens": 32}})]
    seen: list[float | None] = []
    for row in rows:
        play(attention, row, of, 96, 32, lambda tokens, row=row: seen.append(attention.breadth(row)))
    assert seen[:2] == seen[3:5]
    assert seen[2] == pytest.approx(breadth_of(of.queries[2], of.keys[2].transpose(0, 1)))
    for read, found in zip((32, 64), seen[3:5], strict=True):  # of the layer that stands for the three
        assert found == pytest.approx(breadth_of(of.queries[2, :read], of.keys[2, :read].transpose(0, 1)))
    assert seen[5] == seen[4]  # by then half was gone


def test_a_weight_is_that_of_the_share_of_entries_that_hold_most_within_bounds() -> None:
    assert WEIGHING.weight(None, 100, None) == 1.0
    assert WEIGHING.weight(None, 100, 6) == 1.5
    assert WEIGHING.weight(None, 400, None) == 0.5  # twice as many entries in a prompt four times as long
    assert WEIGHING.weight(None, 64, None) == 1.25
    assert (WEIGHING.weight(None, 4000, None), WEIGHING.weight(None, 1, None)) == (0.5, 2.0)
    assert WEIGHING.weight("rag", 64, None) == 0.625  # as its class is known to be
    assert WEIGHING.weight("rag", 64, 4) == 1.25  # as it was measured
    assert WEIGHING.weight("chat", 100, 3) == 1.5


@given(limit=st.integers(0, 400), most=st.integers(1, 4000))
@settings(deadline=None)
def test_the_level_is_the_highest_that_fits(limit: int, most: int) -> None:
    found = highest_level(lambda level: level <= limit, most, SCHEDULING)
    assert found is not None
    assert found == limit or (found < limit and (found - 16) * 16 > most - 16)
    assert highest_level(lambda level: False, most, SCHEDULING) is None


def _two(model: Decoder, breadths: tuple[float, float], **kv: Any) -> list[int]:
    """Budgets of two prompts of equal length in a pool that two floors fill, their attention as given."""
    one = driven(model, pages=6 * 8, dynamic=True, scheduling=WEIGHING, **ASKED)
    for number in (0, 1):
        one.engine.add(number, LONG, sampling(40, kv=kv or None))
    while not all(request.decodes for request in one.scheduler.running) or len(one.scheduler.running) < 2:
        one.step()
    for request, found in zip(one.scheduler.running, breadths, strict=True):
        held = one.attention._requests[request.row or 0]
        held.breadths = dict.fromkeys(held.breadths, found)
    one.admission.share(one.scheduler.running)
    pages = one.needs
    budgets = [request.spec.budget.tokens or 0 for request in one.scheduler.running]
    assert sum(pages.held(r.spec, r.prompt, r.most_tokens) for r in one.scheduler.running) <= one.store.pages
    one.drain()
    assert one.scheduler.preemptions == 0
    return budgets


def test_of_two_equal_prompts_the_one_with_broad_attention_keeps_more(model: Decoder) -> None:
    narrow, broad = _two(model, (3.5, 7.0))
    assert narrow < broad
    assert _two(model, (7.0, 3.5)) == [broad, narrow]
    equal = _two(model, (5.0, 5.0))
    assert narrow < equal[0] == equal[1] < broad


def test_prompts_broader_than_their_class_get_less_than_their_floors_and_never_more_than_the_pool(
    model: Decoder,
) -> None:
    first, second = _two(model, (20.0, 20.0))
    assert first == second
    assert 20 <= first < 80  # asked for 40, twice of it by their breadth, half of it at least


def test_a_class_is_what_is_expected_of_a_prompt_until_it_is_read(model: Decoder) -> None:
    one = driven(model, pages=6 * 8, dynamic=True, scheduling=WEIGHING, **ASKED)
    for number, kind in enumerate(("rag", "chat")):
        one.engine.add(number, LONG, sampling(10, kv={"class": kind}))
    one.step()
    rag, chat = one.scheduler.running
    assert (rag.spec.budget.tokens or 0) < (chat.spec.budget.tokens or 0)
    one.drain()


class _Counting(Static):
    shared = 0

    def share(self, running: Sequence[Request]) -> None:
        self.shared += 1


def test_those_who_run_share_anew_though_the_next_one_is_refused(model: Decoder) -> None:
    one = driven(model, pages=6 * 14)
    counting = one.scheduler._admission = _Counting(one.store, one.needs, 0)
    for number in (0, 1):
        one.engine.add(number, LONG, sampling(40))
    while not one.scheduler.running or not one.scheduler.running[0].decodes:
        one.step()
    assert (len(one.scheduler.running), counting.shared) == (1, 0)  # the second waits
    one.step()
    assert counting.shared == 1  # as soon as the first one's prompt was read
    one.drain()


def _preemptions(model: Decoder, headroom: int) -> tuple[int, list[list[int]]]:
    told = Scheduling(headroom=headroom, tokens=100, least=1.0, most=1.0, classes=CLASSES)
    few = driven(model, pages=6 * 8, scheduling=told, eos_ids=())
    for number in range(5):
        few.engine.add(number, LONG[number : number + 20], sampling(60, ignore_eos=False))
    few.drain()
    return few.scheduler.preemptions, [few.tokens(number) for number in range(5)]


def test_headroom_keeps_who_gave_way_from_coming_back_too_early(model: Decoder) -> None:
    early, told = _preemptions(model, 0)
    late, same = _preemptions(model, 16)
    assert same == told
    assert 0 < late <= early / 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": {"rag": {"breadth": 9, "weight": 1.0}}}, "classes lacks other"),
        ({"classes": {"other": {"breadth": 0, "weight": 1.0}}}, "breadth and weight are above 0"),
        ({"classes": {"other": {"breadth": 9}}}, r"classes\.other needs two numbers"),
        ({"classes": {"other": {"breadth": 9, "weight": "???"}}}, r"classes\.other needs two numbers"),
        ({"tokens": 0}, "tokens is at least 1"),
        ({"least": 1.5}, "least is above 0 and at most 1"),
        ({"most": 0.5}, "most at least 1"),
        ({"headroom": -1}, "headroom is at least 0"),
    ],
)
def test_bounds_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    usual = {"other": {"breadth": 9, "weight": 1.0}}
    given_ = {"headroom": 0, "tokens": 100, "least": 1.0, "most": 1.0, "classes": usual}
    with pytest.raises(UsageError, match=words):
        scheduling_of({**given_, **changes})


def test_a_class_that_is_not_known_is_refused_and_names_the_known_ones(model: Decoder) -> None:
    check_class(None, WEIGHING)
    for wrong in ("poetry", 3):
        with pytest.raises(UsageError, match=rf"kv.class={wrong} is unknown. Choose one of other, rag, chat"):
            check_class(wrong, WEIGHING)
    one = driven(model, scheduling=WEIGHING)
    with pytest.raises(ValueError, match="class=poetry is unknown"):
        one.engine.add(0, [1, 2], sampling(1, kv={"class": "poetry"}))
    assert not one.engine.has_work()


def test_a_workload_is_the_class_of_its_requests_where_a_scheduler_asks() -> None:
    dynamic = kvcompress(scheduler="dynamic")
    assert dynamic.workload_extras("rag") == {"kv": {"class": "rag"}}
    assert dynamic.workload_extras("trace") == {}
    assert kvcompress().workload_extras("rag") == {}
    assert endpoint("http://127.0.0.1:1").workload_extras("rag") == {}
