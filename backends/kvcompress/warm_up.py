"""Everything that is compiled on its first use, used once before an engine serves: nobody waits for it then."""

import logging
import time

import torch

from backends.kvcompress.contracts import KvStore
from backends.kvcompress.engine import KvCompressEngine
from backends.kvcompress.selection import select
from backends.kvcompress.spec import KvSpec
from backends.serving.engine import Sampling

log = logging.getLogger("kvcompress")
_PROMPT = 20  # tokens; any would do
_STEPS = 2  # the prompt gives a first token, and decoding another


def warm_up(engine: KvCompressEngine, spec: KvSpec) -> None:
    """Compute one short request under the engine's own KV setting, and call what it does not reach.

    It keeps two tokens where the setting has a budget, so that it never needs more of the pool than a request that
    the engine was started for. Where it cannot be computed the engine's log says so, and the first requests wait.
    What a request of another format needs is compiled when the first one comes.
    """
    started = time.monotonic()
    if spec.evict != "none":
        _evict(engine.store, spec)
    prompt = min(_PROMPT, engine.capacity_tokens - _STEPS)
    if prompt < 1:
        log.warning(
            "not warm: a context of %d tokens has no room for a request; the first ones compile what they use",
            engine.capacity_tokens,
        )
        return
    try:
        engine.add(0, [0] * prompt, _sampling(spec))
    except ValueError as error:
        log.warning("not warm, the first requests compile what they use: %s", error)
        return
    while engine.has_work():
        engine.step()
    log.info("warm after %.1f s", time.monotonic() - started)


def _evict(store: KvStore, spec: KvSpec) -> None:
    """What is called from a prompt's second chunk on, and where budgets bind: under pressure alone, if they are
    dynamic. On a row that holds nothing, which takes no page."""
    row = store.open(spec)
    slots = store.read(0, row)
    store.add_attention(0, row, 1.0, slots.attention)
    if spec.reindex:
        store.move(0, row, slots.keys, slots.positions)
    store.keep(0, row, slots.packed)
    store.close(row)
    heads = len(slots.positions)
    positions = torch.arange(2, device=slots.positions.device).expand(heads, -1)
    select(positions, positions, [1] * heads, 0, 1, 2, False)


def _sampling(spec: KvSpec) -> Sampling:
    return Sampling(
        max_tokens=_STEPS,
        min_tokens=_STEPS,
        ignore_eos=True,
        temperature=0.0,
        top_p=1.0,
        seed=0,
        logprobs=False,
        prompt_logprobs=False,
        kv={"budget": {"tokens": 2}} if spec.budget.given else None,
    )
