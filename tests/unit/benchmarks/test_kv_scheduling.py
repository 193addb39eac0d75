"""The benchmark of schedulers on a tiny model: the clock, the forced answers, and the table they end in."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from backends.kvcompress.model.decoder import Decoder
from backends.kvcompress.scheduling import Scheduling, WorkloadClass
from benchmarks.kv.arm import Arm, Forced
from benchmarks.kv.mixed import KINDS, Asked
from benchmarks.kv_scheduling import DYNAMIC, FULL, STATIC, bytes_of_exact, loss, missed, table
from tests.support.kv import spec
from tests.support.kv_engine import driven, load_tiny, paged_store, sampling, tiny_llama

EVICTING = {"evict": "knorm", "budget": {"tokens": 24}}
LOAD = [Asked(kind, tuple(range(number, number + 60)), 8, number * 5.0) for number, kind in enumerate(KINDS)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return load_tiny(folder)


@pytest.fixture(scope="module")
def arms(model: Decoder) -> list[Arm]:
    classes = {kind: WorkloadClass(3.0, 1.0) for kind in ("other", *KINDS)}
    told = Scheduling(headroom=0, tokens=100, least=1.0, most=1.0, classes=classes)
    first = Arm(FULL, driven(model, scheduling=told).engine, LOAD)
    while first.going():
        first.step()
    forced = partial(Forced, first.tokens)
    found = [
        Arm(name, driven(model, scheduling=told, writing=forced, dynamic=name == DYNAMIC, **kv).engine, LOAD)
        for name, kv in ((FULL, {}), (STATIC, EVICTING), (DYNAMIC, EVICTING))
    ]
    for arm in found:
        arm.warm_up()
        assert (arm.clock, arm.sent, arm.tokens) == (0, 0, {})
        while arm.going():
            arm.step()
    return found


def test_every_way_gives_the_answers_of_the_full_cache(model: Decoder, arms: list[Arm]) -> None:
    full, static, dynamic = arms
    assert full.tokens == static.tokens == dynamic.tokens
    assert (
        full.logprobs == dynamic.logprobs != static.logprobs
    )  # in a pool with room dynamic keeps everything
    alone = driven(model)
    ids = [*LOAD[0].prompt, *full.tokens[0]]
    alone.engine.add(0, ids, sampling(1, prompt_logprobs=True))
    alone.drain()
    assert full.logprobs[0] == pytest.approx(alone.prompt_logprobs(0)[60:], abs=1e-3)


def test_a_clock_runs_while_its_engine_computes_and_jumps_to_who_comes_next(arms: list[Arm]) -> None:
    for arm in arms:
        assert arm.clock > LOAD[-1].arrival  # nobody was there for most of the time
        assert all(wait > 0 for wait in arm.waits())
        assert sum(map(len, arm.tokens.values())) == 24
        assert arm.at_once >= 1


def test_the_table_has_a_row_for_each_and_the_full_cache_loses_nothing(arms: list[Arm]) -> None:
    assert loss(arms[0], arms[0], None).value == 1
    lost = np.mean([sum(arms[0].logprobs[n]) - sum(arms[1].logprobs[n]) for n in range(3)]) / 8
    assert loss(arms[1], arms[0], None).value == pytest.approx(np.exp(lost))
    header, rule, *rows = table(arms).splitlines()
    assert len(rows) == 3
    assert {line.count("|") for line in (header, rule, *rows)} == {9 + len(KINDS)}
    assert missed(arms) == [f"{DYNAMIC} runs no more requests at once than {FULL}"]


@pytest.mark.parametrize("count", [1, 100, 333])
def test_a_pool_of_so_many_tokens_holds_them_and_no_page_more(model: Decoder, count: int) -> None:
    config = model.config
    store = paged_store(bytes_of_exact(count, config, spec(), 256))
    row = store.open(spec())
    shape = (count, config.kv_heads, config.head_dim)
    rows, positions = torch.full((count,), row, dtype=torch.int32), torch.arange(count)
    for layer in range(config.layers):
        store.append(layer, rows, positions, torch.zeros(shape), torch.zeros(shape))
    assert store.free_pages() == 0
