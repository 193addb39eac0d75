"""CPU time of one decode step's attention over the paged store, for each way of holding keys and values.

    python benchmarks/kv_decode.py [--contexts 1024,2048,4096,8192] [--batch 1] [--runs 9] [--check]

30 layers, 9 query heads on 3 KV heads of 64 values (SmolLM2-135M's shape), random numbers, 1 thread; 4 sinks and 16
recent tokens are exact, all others packed. Milliseconds of the process's CPU time for all layers, medians; beside
them the bytes of a slot (one token in one head and layer), everything counted. --check exits 1 where quantised KV is
slower than f32 from 4096 tokens on, or more than 5 % slower below.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.kvcompress.spec import Budget, KvSpec
from backends.kvcompress.store import PagedStore

LAYERS, HEADS, GROUP, DIM = 30, 3, 3, 64
SINKS, RECENT = 4, 16
FASTER_FROM, SLOWER_BY = 4096, 1.05

# name: type of exact slots, quant, codebook, rotate, granularity
FORMATS = {
    "f32": ("f32", "none", False, False, "token_head"),
    "bf16": ("bf16", "none", False, False, "token_head"),
    "int8": ("f32", "int8", False, False, "token_head"),
    "fp8": ("f32", "fp8", False, False, "token_head"),
    "int4": ("f32", "int4", False, False, "token_head"),
    "codebook 4 bit": ("f32", "int4", True, True, "token_head"),
    "codebook 3 bit": ("f32", "int3", True, True, "token_head"),
    "int2": ("f32", "int2", False, False, "token_head"),
    "int4 group": ("f32", "int4", False, False, "group"),
    "int4 kivi": ("f32", "int4", False, False, "kivi"),
}


def filled(name: str, context: int, batch: int) -> tuple[PagedStore, torch.Tensor]:
    """A store and its rows, each of `context` tokens in every layer."""
    exact, quant, codebook, rotate, granularity = FORMATS[name]
    spec = KvSpec(
        evict="none", budget=Budget(None, None, None), spread="uniform", sinks=SINKS, recent=RECENT, when="prompt",
        reindex=False, quant=quant, granularity=granularity, group=32, codebook=codebook, rotate=rotate, share="none",
    )  # fmt: skip
    made = PagedStore(LAYERS, HEADS, GROUP, DIM, exact, 1 << 20, 1, context, 1, lambda _: False)
    waiting = SINKS + RECENT + spec.group
    most = made.pages_for(spec, waiting, context) if quant != "none" else made.pages_for(spec, context, 0)
    pages = LAYERS * HEADS * batch * most + HEADS * made.pages_for(spec, context, 0)
    store = PagedStore(
        LAYERS, HEADS, GROUP, DIM, exact, pages * made.page_bytes, batch, context, 1, lambda _: False
    )
    rows = [store.open(spec) for _ in range(batch)]
    keys, values = torch.randn(2, context, HEADS, DIM)
    for row in rows:
        for layer in range(LAYERS):
            store.append(
                layer, torch.full((context,), row, dtype=torch.int32), torch.arange(context), keys, values
            )
            store.pack(layer, row, SINKS, context - RECENT)
    return store, torch.tensor(rows, dtype=torch.int32)


def step_ms(store: PagedStore, rows: torch.Tensor, runs: int) -> float:
    queries = torch.randn(len(rows), HEADS * GROUP, DIM)
    decay = torch.full((len(rows),), float("nan"))
    taken = []
    for _ in range(runs + 1):  # the first compiles, or reads from the cache
        began = time.process_time()
        for layer in range(LAYERS):
            store.attend(layer, rows, queries, decay)
        taken.append(1e3 * (time.process_time() - began))
    return statistics.median(taken[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", default="1024,2048,4096,8192")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    contexts = [int(context) for context in options.contexts.split(",")]
    torch.set_num_threads(1)
    print(f"{'ms CPU':16}" + "".join(f"{context:>9}" for context in contexts) + "   bytes/slot", flush=True)
    found: dict[tuple[str, int], float] = {}
    for name in options.formats.split(","):
        for context in contexts:
            store, rows = filled(name, context, options.batch)
            found[name, context] = step_ms(store, rows, options.runs)
        held = store.held_bytes(int(rows[0])) / (contexts[-1] * LAYERS * HEADS)
        figures = "".join(f"{found[name, context]:9.2f}" for context in contexts)
        print(f"{name:16}{figures}{held:13.1f}", flush=True)
    slower = [
        f"{name} at {context}"
        for (name, context), taken in found.items()
        if name not in ("f32", "bf16")
        and taken > found["f32", context] * (1 if context >= FASTER_FROM else SLOWER_BY)
    ]
    if options.check and slower:
        print(f"slower than f32: {', '.join(slower)}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
