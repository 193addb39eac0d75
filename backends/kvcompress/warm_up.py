"""One request through an engine that is about to serve: nobody waits for what is compiled on its first use."""

import logging
import time

from backends.kvcompress.spec import KvSpec
from backends.serving.engine import Engine, Sampling

log = logging.getLogger("kvcompress")
_STEPS = 10  # of decoding: more than the tokens that are packed in one go
_OTHERS = 16  # tokens of the prompt that may be evicted and packed


def warm_up(engine: Engine, spec: KvSpec) -> None:
    """Read a short prompt and decode under the engine's own KV setting, with a budget that makes it evict.

    What a request of another format needs is compiled when the first one comes.
    """
    started = time.monotonic()
    stays = spec.sinks + spec.recent + 1
    prompt = min(stays + spec.group + _OTHERS, engine.capacity_tokens - _STEPS)
    kv = {"budget": {"tokens": stays}} if spec.budget.given else None
    if prompt < 1:
        return
    engine.add(
        0,
        [0] * prompt,
        Sampling(
            max_tokens=_STEPS,
            min_tokens=_STEPS,
            ignore_eos=True,
            temperature=0.0,
            top_p=1.0,
            seed=0,
            logprobs=False,
            prompt_logprobs=False,
            kv=kv,
        ),
    )
    while engine.has_work():
        engine.step()
    log.info("warm after %.1f s", time.monotonic() - started)
