"""Static against dynamic KV budgets on one mixed load, in a pool that is too small for it.

    python benchmarks/kv_scheduling.py [--eights 2] [--pool-tokens 1200] [--kept 0.35] [--pressure] [--check]

Long RAG prompts, short chats and summaries arrive one after another. Each way to schedule has an engine and a clock
of its own, the CPU seconds it has computed, and they take turns step by step in one process, over one copy of the
model.
First the answers are generated over a full cache; then every way is made to give those very answers, so that all do
the same work, and what its budgets cost shows in the probability of the answers' tokens. TTFT counts the wait for
room. --check exits 1 where dynamic runs no more requests at once than what keeps everything, or loses more than the
static budget that was asked for.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.kvcompress.loading import assemble
from backends.kvcompress.model.config import DecoderConfig
from backends.kvcompress.model.decoder import Decoder, load_decoder
from backends.kvcompress.spec import KvSpec, from_mapping, with_full_precision
from backends.kvcompress.store.paged import PagedStore
from backends.serving.engine import EngineConfig
from backends.serving.writing import Writing
from benchmarks.kv.arm import Arm, Forced
from benchmarks.kv.intervals import Interval, perplexity_ratio
from benchmarks.kv.mixed import KINDS, Asked, mixed_load
from benchmarks.kv.settings import engine_options, scheduling
from benchmarks.kvcompress import model_folder
from harness.core.tokenizer import Tokenizer

FULL, STATIC, PRESSURE, DYNAMIC = "everything kept", "static", "dynamic, pressure alone", "dynamic"
_EVICTING = {"evict": "auto", "spread": "retrieval"}


def main() -> int:
    options = _parser().parse_args()
    folder = model_folder()
    tokenizer = Tokenizer.from_folder(folder)
    load = mixed_load(tokenizer, options.eights, options.answer, options.every, options.seed)
    model = load_decoder(folder, "cpu")
    names = [FULL, STATIC, *([PRESSURE] if options.pressure else []), DYNAMIC]
    start = partial(_arm, folder, model, load, options)
    answers = _answers(options.answers, load, start)
    arms = [start(name, None, partial(_forced, answers)) for name in names]
    for arm in arms:
        arm.warm_up()
    while any(arm.going() for arm in arms):
        for arm in arms:
            if arm.going():
                arm.step()
                if not arm.going():
                    print(f"{arm.name}: {arm.clock:.0f} s, {arm.at_once} at once", file=sys.stderr)
    print(f"{len(load)} requests, a pool of {options.pool_tokens} tokens that are kept as computed\n")
    print(table(arms))
    return 1 if options.check and missed(arms) else 0


def table(arms: Sequence[Arm]) -> str:
    """Markdown; the first arm is the one that loses nothing."""
    header = [
        "",
        "at once",
        "mean",
        "answer tokens/s",
        "TTFT p50",
        "p95",
        "preemptions",
        "perplexity over full",
    ]
    lines = [header + list(KINDS), ["---"] * (len(header) + len(KINDS))]
    for arm in arms:
        waits = np.quantile(arm.waits(), (0.5, 0.95))
        lines.append(
            [
                arm.name,
                str(arm.at_once),
                f"{arm.running_seconds / arm.clock:.1f}",
                f"{arm.tokens_per_second():.1f}",
                *(f"{wait:.1f} s" for wait in waits),
                str(arm.preemptions()),
                *(_shown(loss(arm, arms[0], kind)) for kind in (None, *KINDS)),
            ]
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def loss(arm: Arm, full: Arm, kind: str | None) -> Interval:
    """Perplexity of the answers over the full cache's, of all requests or of one kind."""
    numbers = [number for number, one in enumerate(full.load) if kind in (None, one.kind)]
    return perplexity_ratio(
        [arm.logprobs[number] for number in numbers], [full.logprobs[number] for number in numbers]
    )


def missed(arms: Sequence[Arm]) -> list[str]:
    """What dynamic scheduling was to reach and does not."""
    by_name = {arm.name: arm for arm in arms}
    full, static, dynamic = by_name[FULL], by_name[STATIC], by_name[DYNAMIC]
    found = []
    if dynamic.at_once <= full.at_once:
        found.append(f"{DYNAMIC} runs no more requests at once than {FULL}")
    if loss(dynamic, full, None).value >= loss(static, full, None).value:
        found.append(f"{DYNAMIC} loses no less than {STATIC}")
    for words in found:
        print(words, file=sys.stderr)
    return found


def _shown(ratio: Interval) -> str:
    return f"{ratio.value - 1:+.1%} ({ratio.low - 1:+.1%} … {ratio.high - 1:+.1%})"


def _forced(answers: Mapping[int, Sequence[int]], *given: Any) -> Forced:
    return Forced(answers, *given)


def _answers(kept: Path | None, load: Sequence[Asked], start: Callable[..., Arm]) -> dict[int, list[int]]:
    """Of the full cache, from the file where it has those of this load."""
    key = hashlib.sha256(repr(load).encode()).hexdigest()
    if kept is not None and kept.exists():
        found = json.loads(kept.read_text())
        if found["load"] == key:
            return {int(number): tokens for number, tokens in found["answers"].items()}
    arm = start(FULL, 1 << 31, Writing)
    while arm.going():
        arm.step()
    if kept is not None:
        kept.write_text(json.dumps({"load": key, "answers": arm.tokens}))
    return arm.tokens


def _arm(
    folder: Path,
    model: Decoder,
    load: Sequence[Asked],
    options: argparse.Namespace,
    name: str,
    pool_bytes: int | None,
    writing: Any,
) -> Arm:
    """pool_bytes: None for the pool that is too small."""
    whole, told = engine_options(), scheduling()
    kv: Any = OmegaConf.to_container(whole.kv)
    evicting = {} if name == FULL else {**_EVICTING, "budget": {"fraction": options.kept}}
    weights = {"least": 1.0, "most": 1.0} if name == PRESSURE else {}
    longest = max(len(one.prompt) + one.tokens for one in load)
    config = EngineConfig(
        model=folder,
        eos_ids=(),
        device="cpu",
        dtype="f32",
        kv_dtype="f32",
        context_length=longest,
        max_running=len(load),
        kv_bytes=pool_bytes or bytes_of_exact(options.pool_tokens, model.config, from_mapping(kv), longest),
        prefix_cache=False,
        prefill_chunk=options.chunk,
        threads=1,
        seed=0,
        own={
            "kv": {**kv, **evicting},
            "kernel": whole.kernel,
            "scheduler": "dynamic" if name in (PRESSURE, DYNAMIC) else "static",
            "scheduling": {**told, **weights},
        },
    )
    return Arm(name, assemble(config, model, writing), load)


def bytes_of_exact(tokens: int, model: DecoderConfig, spec: KvSpec, longest: int) -> int:
    """Of whole pages of the compiled store that hold so many tokens in float32. longest: tokens of a request."""
    store = PagedStore(
        model.layers, model.kv_heads, model.heads // model.kv_heads, model.head_dim, "f32",
        pool_bytes=0, max_rows=0, context_length=longest, threads=1, has_attention=lambda spec: False,
    )  # fmt: skip
    pages = store.pages_for(with_full_precision(spec), tokens, 0)
    return model.layers * model.kv_heads * pages * store.page_bytes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Static against dynamic KV budgets on one mixed load.")
    add = parser.add_argument
    add("--eights", type=int, default=2, help="how often 2 RAG, 4 chat and 2 summaries arrive (default 2)")
    add("--answer", type=int, default=32, help="tokens of each answer (default 32)")
    add("--every", type=float, default=2.0, help="seconds between two arrivals (default 2)")
    add("--pool-tokens", type=int, default=1200, help="tokens of full KV that the pool holds (default 1200)")
    add("--kept", type=float, default=0.35, help="the fraction that is asked for (default 0.35)")
    add("--chunk", type=int, default=128, help="tokens of a prompt that a pass reads (default 128)")
    add("--seed", type=int, default=0, help="of the prompts (default 0)")
    add(
        "--check",
        action="store_true",
        help="exit 1 where dynamic does not run more, or loses more than static",
    )
    add("--answers", type=Path, help="a file that keeps the answers of the full cache for the next run")
    add("--pressure", action="store_true", help="also dynamic without regard to attention and class")
    return parser


if __name__ == "__main__":
    sys.exit(main())
