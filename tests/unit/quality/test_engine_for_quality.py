import dataclasses

import pytest

from harness.quality.options import PerplexityOptions, QualityOptions
from harness.quality.phase import engine_for_quality
from tests.support.backends import endpoint, kvcompress, openvino

_QUALITY = QualityOptions(
    chunk=64, perplexity=PerplexityOptions(tokens=100, window=50, stride=None, text=None)
)


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize(("chunk", "fed"), [(64, 64), (None, 256)])
def test_it_is_fed_in_chunks_and_without_a_prefix_cache(prefix_cache: bool, chunk: int | None, fed: int):
    engine = openvino(prefix_cache=prefix_cache, prefill_chunk=256).options
    changed = engine_for_quality(dataclasses.replace(_QUALITY, chunk=chunk), engine)
    assert changed == dataclasses.replace(engine, prefix_cache=False, prefill_chunk=fed)
    assert (changed == engine) is (
        fed == 256 and not prefix_cache
    )  # only then the engine need not start again


def test_an_engine_of_somebody_else_stays_as_it_is():
    theirs = endpoint("http://127.0.0.1:1").options
    assert engine_for_quality(_QUALITY, theirs) == theirs


def test_a_request_that_is_alone_still_gets_the_budget_that_was_asked_for():
    kv = {"evict": "h2o", "budget": {"fraction": 0.25}}
    engine = kvcompress(kv, prefill_chunk=64, scheduler="dynamic").options
    changed = engine_for_quality(_QUALITY, engine)
    assert changed == kvcompress(kv, prefill_chunk=64, scheduler="static").options != engine
    assert engine_for_quality(_QUALITY, changed) == changed


def test_without_a_quality_phase_nothing_changes():
    engine = openvino(prefix_cache=True).options
    assert engine_for_quality(dataclasses.replace(_QUALITY, perplexity=None), engine) is engine
