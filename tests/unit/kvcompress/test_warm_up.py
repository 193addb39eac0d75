"""What is compiled before an engine serves, and that it always comes to serve."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
import torch

from backends.kvcompress import given, selection_compiled
from backends.kvcompress.model import panels
from backends.kvcompress.model.decoder import Decoder
from backends.kvcompress.store import compiled
from backends.kvcompress.warm_up import warm_up
from tests.support.kv import spec
from tests.support.kv_engine import (
    CONTEXT,
    HEADS,
    LAYERS,
    driven,
    load_tiny,
    paged_store,
    sampling,
    tiny_llama,
)

OF_THE_STORE = ("append", "add_chunk", "keep", "read", "pack", "add_given", "move_keys")
PROMPT = list(range(90)) + list(range(60))
Called = set[tuple[Any, ...]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return load_tiny(folder)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    """Names of the compiled functions that were called since, with the types of their arguments: each is compiled."""
    found: Called = set()

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any) -> Any:
            found.add((name, *map(numba.typeof, arguments)))
            return function(*arguments)

        return note

    for name in OF_THE_STORE:
        monkeypatch.setattr(compiled, name, noted(name, getattr(compiled, name)))
    monkeypatch.setattr(selection_compiled, "select", noted("select", selection_compiled.select))
    adder, product, attend = given._adder(), panels._product(1), compiled.attend_kernel
    monkeypatch.setattr(given, "_adder", lambda: noted("add", adder))
    monkeypatch.setattr(panels, "_product", lambda threads: noted("product", product))
    monkeypatch.setattr(compiled, "attend_kernel", lambda *of: noted(f"attend {of}", attend(*of)))
    return found


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "changes",
    [
        {"evict": "h2o", "quant": "int4"},
        {"evict": "snapkv", "spread": "adakv"},
        {"evict": "streaming_llm", "reindex": True},
    ],
    ids=lambda changes: changes["evict"],
)
def test_requests_that_evict_call_nothing_that_was_not_compiled(
    model: Decoder, called: Called, changes: dict[str, Any], dynamic: bool
) -> None:
    """The chunk is as long as the warm-up's prompt, which so is never a second one."""
    setting = {**changes, "budget": {"tokens": 24}}
    one = driven(model, pages=140, chunk=32, dynamic=dynamic, kind=paged_store, **setting)
    warm_up(one.engine, spec(**setting))
    assert not one.engine.has_work()
    assert one.store.free_pages() == one.store.pages
    warm = set(called)
    assert {"select", "keep", "append", "add_chunk", "read"} <= {name for name, *_ in warm}
    called.clear()
    for number in range(4):
        one.engine.add(number, PROMPT[number:], sampling(20))
    one.drain()
    assert {"select", "keep"} <= {name for name, *_ in called}  # that is, something was evicted
    assert called <= warm


@pytest.mark.parametrize(
    ("budget", "recent"), [({"tokens": 16}, 32), ({"fraction": 0.1}, 8), ({"tokens": 1}, 32)], ids=str
)
@pytest.mark.parametrize("quant", ["none", "int8"])
def test_a_pool_of_one_request_is_enough_to_warm_up_in(
    model: Decoder, caplog: pytest.LogCaptureFixture, budget: dict[str, Any], recent: int, quant: str
) -> None:
    setting = {"evict": "h2o", "budget": budget, "recent": recent, "quant": quant}
    wanted, needs = spec(**setting), driven(model, kind=paged_store, **setting).needs
    pages = needs.held(wanted, CONTEXT, CONTEXT) + needs.passing(wanted, CONTEXT)
    one = driven(model, pages=pages, kind=paged_store, **setting)
    caplog.set_level(logging.INFO, "kvcompress")
    warm_up(one.engine, wanted)
    assert "warm after" in caplog.text
    one.engine.add(0, PROMPT, sampling(8))
    one.drain()
    assert len(one.tokens(0)) == 8


def test_an_engine_that_cannot_warm_up_says_so_and_serves(
    model: Decoder, caplog: pytest.LogCaptureFixture
) -> None:
    one = driven(model, pages=LAYERS * HEADS)  # of 16 slots
    warm_up(one.engine, spec())
    assert "not warm" in caplog.text
    one.engine.add(0, [1, 2, 3], sampling(4))
    one.drain()
    assert len(one.tokens(0)) == 4


@pytest.mark.parametrize("capacity", [2, 4])
def test_the_shortest_contexts_are_served(
    model: Decoder, caplog: pytest.LogCaptureFixture, capacity: int
) -> None:
    caplog.set_level(logging.INFO, "kvcompress")
    one = driven(model)
    one.engine.capacity_tokens = capacity
    warm_up(one.engine, spec())
    assert ("not warm: a context of 2 tokens" in caplog.text) == (capacity == 2)
    assert ("warm after" in caplog.text) == (capacity == 4)
    one.engine.add(0, [1], sampling(1))
    one.drain()
    assert len(one.tokens(0)) == 1
