"""Attention over the stores that serve gives what it gives over the plain one, evictions and all."""

from typing import Any

import pytest
import torch

from backends.kvcompress.contracts import KvStore
from tests.support.kv import spec
from tests.support.kv_play import attention_over, play, stream
from tests.support.kv_store import ListStore
from tests.support.kv_stores import DIM, GROUP, HEADS, LAYERS, STORES

SETTINGS: list[dict[str, Any]] = [
    {},
    {"evict": "h2o", "budget": {"tokens": 30}},
    {"evict": "tova", "budget": {"fraction": 0.4}},
    {"evict": "snapkv", "budget": {"fraction": 0.7}, "spread": "adakv"},
    {"evict": "expected_attention", "budget": {"tokens": 40}, "spread": "pyramid"},
    {"evict": "streaming_llm", "budget": {"tokens": 25}, "reindex": True},
]


def played(store: KvStore, settings: dict[str, Any]) -> tuple[torch.Tensor, list[list[int]]]:
    tokens = stream(130, LAYERS, HEADS * GROUP, HEADS, DIM)
    attention = attention_over(store, LAYERS, HEADS)
    row = attention.open(spec(**settings), 90)
    result = play(attention, row, tokens, 90, 40)
    kept = [
        sorted(head)
        for layer in range(LAYERS)
        for head in store.read(layer, row, vectors=False).positions.tolist()
    ]
    attention.close(row)
    assert store.free_pages() == store.pages
    return result, kept


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda given: given.get("evict", "none"))
@pytest.mark.parametrize("name", sorted(STORES))
def test_any_store_gives_the_same(name: str, settings: dict[str, Any]) -> None:
    expected, kept = played(ListStore(LAYERS, HEADS, DIM), settings)
    result, also_kept = played(STORES[name](), settings)
    assert also_kept == kept
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", sorted(STORES))
@pytest.mark.parametrize("spread", ["uniform", "adakv"])
@pytest.mark.parametrize(("quant", "size"), [("none", 200_000), ("int4", 110_000)])
def test_bytes_are_never_exceeded_whatever_holds_them(name: str, spread: str, quant: str, size: int) -> None:
    store = STORES[name]()
    attention = attention_over(store, LAYERS, HEADS)
    row = attention.open(spec(evict="knorm", budget={"bytes": size}, spread=spread, quant=quant), 150)
    tokens = stream(260, LAYERS, HEADS * GROUP, HEADS, DIM)
    held: list[int] = []
    play(attention, row, tokens, 150, 50, lambda seen: held.append(store.held_bytes(row)))
    assert max(held) <= size
    assert quant != "none" or max(held) >= 0.5 * size  # where all slots are alike, the budget is made use of
