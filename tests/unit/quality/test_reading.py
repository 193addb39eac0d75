"""Tasks that would never read the cache they judge are refused; those that would, or need not, are not."""

import dataclasses
from typing import Any

import pytest

from backends.base import Backend
from harness.core.errors import UsageError
from harness.quality.options import (
    AgreementOptions,
    PerplexityOptions,
    QualityOptions,
    ReasoningOptions,
    RecallOptions,
)
from harness.quality.reading import check_reads_cache
from tests.support.backends import endpoint, kvcompress, openvino, tensorrt_llm
from tests.support.model import embedded_tokenizer

_TOKENIZER = embedded_tokenizer()
_EVICTS: dict[str, Any] = {"evict": "snapkv"}
_TASKS: dict[str, Any] = {
    "perplexity": PerplexityOptions(text=None, tokens=900, window=201, stride=None),
    "agreement": AgreementOptions(prompts=1, prompt_tokens=120, tokens=81, alternatives=5),
    "recall": RecallOptions(lengths=[100, 200], depths=[0.5], trials=1, facts=1, question_first=False),
}


def check(backend: Backend, chunk: int | None, **tasks: Any) -> None:
    check_reads_cache(QualityOptions(chunk=chunk, **tasks), backend, _TOKENIZER, 0)


@pytest.mark.parametrize("task", _TASKS)
@pytest.mark.parametrize("kv", [_EVICTS, {"quant": "int4"}, {"share": "minicache"}])
def test_what_is_fed_in_one_chunk_is_refused_for_a_cache_that_is_not_exact(task: str, kv: dict[str, Any]):
    check(kvcompress(kv, prefill_chunk=199), None, **{task: _TASKS[task]})
    with pytest.raises(
        UsageError, match=rf"quality={task} .* backend\.prefill_chunk=200 .* quality\.chunk=100"
    ):
        check(kvcompress(kv, prefill_chunk=200), None, **{task: _TASKS[task]})
    with pytest.raises(UsageError, match=r"quality\.chunk=256 feeds"):
        check(kvcompress(kv, prefill_chunk=64), 256, **{task: _TASKS[task]})
    check(kvcompress({}, prefill_chunk=256), None, **{task: _TASKS[task]})


def test_a_prompt_of_reasoning_is_as_long_as_it_is_drawn():
    task = ReasoningOptions(grades=[1], items=2, choices=2, prompt_tokens=72)
    check(kvcompress(_EVICTS, prefill_chunk=64), None, reasoning=task)
    with pytest.raises(UsageError, match="quality=reasoning"):
        check(kvcompress(_EVICTS, prefill_chunk=256), None, reasoning=task)


def test_any_engine_that_quantises_is_judged_so_and_one_whose_log_probabilities_show_nothing_is_not():
    task = _TASKS["perplexity"]
    with pytest.raises(UsageError, match="lossless"):
        check(openvino(kv_dtype="int8"), 256, perplexity=task)
    check(openvino(kv_dtype="f16"), 256, perplexity=task)
    check(openvino(eviction_keep=512), 256, perplexity=task)  # nothing is evicted before a prompt is complete
    check(tensorrt_llm(kv_dtype="fp8"), 256, perplexity=task)  # it has no route to log-probabilities
    check(endpoint("http://127.0.0.1:1", kv_dtype="int8"), 256, perplexity=task)  # fed as nobody knows


def test_the_shorter_of_text_and_window_counts():
    short = dataclasses.replace(_TASKS["perplexity"], tokens=60)
    with pytest.raises(UsageError, match=r"looks at 59 tokens"):
        check(kvcompress(_EVICTS), 64, perplexity=short)
