"""Arrivals, cancellations and settings of any kind: the pool is never exceeded, and in the end nothing is held."""

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backends.kvcompress.scheduling import Scheduling, WorkloadClass
from tests.support.kv_engine import Driven, driven, load_tiny, sampling, tiny_llama

PAGES, RUNNING = 6 * 12, 5  # of 16 slots: 192 tokens of one request that keeps everything
KV: list[dict[str, Any] | None] = [
    None,
    {"evict": "h2o", "budget": {"fraction": 0.5}},
    {"evict": "streaming_llm", "budget": {"tokens": 20}, "when": "prompt"},
    {"evict": "knorm", "budget": {"tokens": 24}, "spread": "pyramid", "quant": "int4"},
    {"evict": "snapkv", "budget": {"tokens": 30}, "spread": "adakv"},
    {"evict": "tova", "budget": {"bytes": 60_000}},
    {"quant": "int8", "granularity": "channel", "group": 8},
    {"evict": "h2o", "budget": {"fraction": 0.3}, "class": "rag"},
    {"evict": "auto", "budget": {"tokens": 40}, "class": "chat"},
]
CLASSES = {"other": WorkloadClass(3, 1.0), "rag": WorkloadClass(1, 1.0), "chat": WorkloadClass(9, 1.5)}
SCHEDULING = Scheduling(headroom=8, tokens=60, least=0.5, most=2.0, classes=CLASSES)


with tempfile.TemporaryDirectory() as _folder:
    tiny_llama(Path(_folder))
    _MODEL = load_tiny(Path(_folder))


class Storm(RuleBasedStateMachine):
    @initialize(dynamic=st.booleans())
    def begin(self, dynamic: bool) -> None:
        self.driven: Driven = driven(
            _MODEL, pages=PAGES, chunk=16, running=RUNNING, dynamic=dynamic, scheduling=SCHEDULING
        )
        self.asked: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.refused = 0

    @rule(
        length=st.integers(1, 120),
        answer=st.integers(0, 60),
        kv=st.sampled_from(KV),
        certain=st.booleans(),
        echo=st.booleans(),
    )
    def arrive(self, length: int, answer: int, kv: dict[str, Any] | None, certain: bool, echo: bool) -> None:
        number = len(self.asked) + self.refused
        wanted = sampling(answer, kv=kv, prompt_logprobs=echo or not answer, ignore_eos=certain)
        try:
            self.driven.engine.add(number, [(number * 7 + place) % 90 for place in range(length)], wanted)
        except ValueError as error:
            assert "the pool has" in str(error)
            assert length + answer > 100  # whatever its setting, less than that fits
            self.refused += 1
        else:
            self.asked[number] = answer

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.asked)))
        self.driven.engine.cancel(number)
        self.cancelled.add(number)

    @rule(steps=st.integers(1, 12))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            if self.driven.engine.has_work():
                self.driven.step()

    @invariant()
    def no_more_is_held_than_there_is(self) -> None:
        if not hasattr(self, "driven"):
            return
        running, store = self.driven.scheduler.running, self.driven.store
        held = [store.held_pages(request.row) for request in running if request.row is not None]
        assert len(held) == len(running) <= RUNNING
        assert sum(held) + store.free_pages() == store.pages == PAGES
        for request, pages in zip(running, held, strict=True):
            tokens = max(request.cached, 1)
            if request.spec == request.asked:  # else it may have more until its next pass
                assert pages <= self.driven.needs.held(request.spec, request.prompt, tokens)

    def teardown(self) -> None:
        if not hasattr(self, "driven"):
            return
        self.driven.drain()
        assert self.driven.store.free_pages() == PAGES
        assert self.driven.store.used_bytes() == 0
        for number, answer in self.asked.items():
            ended = [output.finish for output in self.driven.told.get(number, []) if output.finish]
            if number in self.cancelled and not ended:
                continue
            assert len(ended) == 1
            tokens = self.driven.tokens(number)
            assert len(tokens) == answer or ended == ["stop"]


TestStorm = Storm.TestCase
TestStorm.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
