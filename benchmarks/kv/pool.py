"""How many requests one pool of fixed size serves at a time, and how fast it serves all of them.

Through the engine itself, with its scheduler: requests of equal length arrive together. `Ours.pool` calls it.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends.serving.engine import EngineConfig, Sampling, load_engine
from benchmarks.kv.driver import Setting
from benchmarks.kv.settings import scheduling
from harness.core.metric_names import PREEMPTIONS


def serve_all(
    model: Path,
    threads: int,
    setting: Setting,
    pool_bytes: int,
    prompts: Sequence[Sequence[int]],
    tokens: int,
) -> dict[str, Any]:
    """Returns at_once (most requests that got a token in one step), tokens (of prompts and answers), preemptions, and
    seconds (CPU, without loading)."""
    longest = max(map(len, prompts)) + tokens
    engine = load_engine(
        "kvcompress",
        EngineConfig(
            model=model,
            eos_ids=(),
            device="cpu",
            dtype="f32",
            kv_dtype=setting["kv_dtype"],
            context_length=longest,
            max_running=len(prompts),
            kv_bytes=pool_bytes,
            prefix_cache=False,
            prefill_chunk=256,
            threads=threads,
            seed=0,
            own={
                "kv": setting["kv"],
                "kernel": setting["kernel"],
                "scheduler": "static",
                "scheduling": scheduling(),
                "weight_dtype": None,
            },
        ),
    )
    sampling = Sampling(
        max_tokens=tokens,
        min_tokens=tokens,
        ignore_eos=True,
        temperature=0.0,
        top_p=1.0,
        seed=0,
        logprobs=False,
        prompt_logprobs=False,
    )
    for number, ids in enumerate(prompts):
        engine.add(number, list(ids), sampling)
    generated, at_once = 0, 0
    started = time.process_time()
    while engine.has_work():
        outputs = engine.step()
        generated += sum(len(output.token_ids) for output in outputs)
        at_once = max(at_once, len(outputs))
    seconds = time.process_time() - started
    preemptions = engine.gauges()[PREEMPTIONS]
    engine.close()
    return {
        "at_once": at_once,
        "tokens": generated + sum(map(len, prompts)),
        "preemptions": preemptions,
        "seconds": seconds,
    }
