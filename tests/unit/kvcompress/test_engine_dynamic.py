"""Budgets by the pressure of the moment: everything while there is room, never less than was asked for."""

from pathlib import Path

import pytest

from backends.kvcompress.model.decoder import Decoder
from harness.core.metric_names import PREEMPTIONS
from tests.support.kv_engine import Driven, driven, load_tiny, sampling, tiny_llama

ASKED = {"evict": "h2o", "budget": {"tokens": 24}}
PAGES = 6 * 14  # of 16 slots: one request of 200 tokens that keeps everything, with room for a chunk
LONG, SHORT = list(range(90)) + list(range(60)), list(range(5, 13))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return load_tiny(folder)


def _most_running(one: Driven, requests: int) -> int:
    for number in range(requests):
        one.engine.add(number, LONG[number:], sampling(20))
    most = 0
    while one.engine.has_work():
        one.step()
        most = max(most, len(one.scheduler.running))
        assert one.store.free_pages() >= 0
    assert all(len(one.tokens(number)) == 20 for number in range(requests))
    assert one.engine.gauges()[PREEMPTIONS] == 0
    assert one.store.free_pages() == PAGES
    return most


def test_where_there_is_room_everything_is_kept(model: Decoder) -> None:
    full, dynamic, static = driven(model), driven(model, dynamic=True, **ASKED), driven(model, **ASKED)
    for one in (full, dynamic, static):
        one.engine.add(0, LONG, sampling(40))
        one.drain()
    assert dynamic.tokens(0) == full.tokens(0)
    assert static.tokens(0) != full.tokens(0)


def test_as_many_run_at_once_as_with_the_least_that_was_asked_for(model: Decoder) -> None:
    assert _most_running(driven(model, pages=PAGES), 4) == 1
    least = _most_running(driven(model, pages=PAGES, **ASKED), 4)
    assert least == 4
    assert _most_running(driven(model, pages=PAGES, dynamic=True, **ASKED), 4) == least


def test_long_requests_give_up_first_and_a_short_one_keeps_everything(model: Decoder) -> None:
    one = driven(model, pages=PAGES, dynamic=True, **ASKED)
    one.engine.add(0, LONG, sampling(20))
    one.engine.add(1, SHORT, sampling(20))
    for _ in range(12):
        one.step()
    (long, short) = one.scheduler.running
    assert long.spec.budget.tokens == 170  # both fit as they are
    before = one.store.held_pages(long.row or 0)
    one.engine.add(2, LONG[1:], sampling(20))
    one.step()
    long, short, other = one.scheduler.running
    assert 24 <= (long.spec.budget.tokens or 0) == (other.spec.budget.tokens or 0) < 170
    assert short.spec.budget.tokens == 28
    one.step()
    assert one.store.held_pages(long.row or 0) < before
    one.drain()


def test_a_request_without_a_budget_is_held_as_it_asked(model: Decoder) -> None:
    one = driven(model, pages=PAGES, dynamic=True, **ASKED)
    whole = {"evict": "none", "budget": None}
    one.engine.add(0, LONG, sampling(20, kv=whole))
    one.engine.add(1, LONG, sampling(20, kv=whole))
    one.step()
    assert [request.spec.evict for request in one.scheduler.running] == ["none"]  # the second waits
    one.drain()
    assert one.tokens(0) == one.tokens(1)
