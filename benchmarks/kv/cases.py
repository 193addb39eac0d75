"""The cases of benchmarks/kvcompress.py: what is measured of which settings."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.kv import memory, quality, speed, text
from benchmarks.kv.processes import Worker
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import Named, peer
from benchmarks.kv.targets import CONTEXTS
from harness.core.tokenizer import Tokenizer

_PROMPT, _PREDICTED, _HAYSTACK = 2048, 512, 1024
_POOL_OF = 2  # requests of full 16-bit KV that the pool of the case "pool" holds
_ANSWER = 512  # of the 2048 tokens of a request in the case "pool"
_AT_ONCE = 8  # requests that a batch of the peers, and of the memory case, has


@dataclass(frozen=True, slots=True)
class Bench:
    """What all cases share. workers: by who. named: ours by name. others: ours that the command line adds."""

    options: argparse.Namespace
    readings: Readings
    workers: Mapping[str, Worker]
    start_ours: Callable[[], Worker]
    named: Callable[[str], Named]
    others: list[Named]
    peers: list[Named]
    tokenizer: Tokenizer

    def chosen(self, *names: str) -> list[Named]:
        """Ours of these names, or those of them that --only leaves."""
        only = self.options.only or names
        return [self.named(name) for name in names if name in only]

    def windows(self, count: int) -> list[text.Window]:
        """Of the half that is asked for."""
        ids = self.tokenizer.encode(text.half_of_corpus(self.options.half))
        return text.windows(ids, count, _PROMPT, _PREDICTED)


def decode(bench: Bench) -> None:
    for batch in bench.options.batch or (1, 8):
        settings = [*bench.chosen("full", "full16", "int8", "int4", "auto"), *_quantised(bench.peers)]
        speed.measure_decode(bench.workers, settings, 2048, batch, bench.options.rounds, bench.readings)


def prefill(bench: Bench) -> None:
    prompt = bench.windows(1)[0].prompt
    settings = [*bench.chosen("full", "auto", "auto at 50 %"), *bench.peers]
    speed.measure_prefill(bench.workers, settings, prompt, bench.options.rounds, bench.readings)


def quantised(bench: Bench) -> None:
    mine = bench.chosen("full", "int8", "int4", "int4 codebook", "int3 codebook", "auto")
    for context in bench.options.context or CONTEXTS:
        settings = [*mine, *_quantised(bench.peers)]
        speed.measure_decode(bench.workers, settings, context, 1, bench.options.rounds, bench.readings)


def quality_of_auto(bench: Bench) -> None:
    _quality(bench, bench.named("auto"), (False, True))


def eviction(bench: Bench) -> None:
    _quality(bench, bench.named("auto at 50 %"), (False,))


def other_settings(bench: Bench) -> None:
    for one in bench.others:
        _quality(bench, one, (False, True))


def peers_quality(bench: Bench) -> None:
    for one in bench.peers:
        _quality(bench, one, (False, True))


def pool(bench: Bench) -> None:
    prompts = [window.prompt[: _PROMPT - _ANSWER] for window in bench.windows(4 * _POOL_OF)]
    worker, full16 = bench.workers["ours"], bench.named("full16")
    handle = worker.call("fill", context=_PROMPT, batch=_POOL_OF, setting=full16.setting)
    pool_bytes = worker.call("held_bytes", handle=handle)
    worker.call("close", handle=handle)
    for one in (full16, bench.named("auto")):
        given = {"pool_bytes": pool_bytes, "prompts": prompts, "tokens": _ANSWER}
        bench.readings.add("pool", one, **worker.call("pool", setting=one.setting, **given))


def resident(bench: Bench) -> None:
    prompts = [window.prompt for window in bench.windows(_AT_ONCE)]
    settings = bench.chosen("full", "int4", "auto")
    memory.measure_memory(bench.start_ours, settings, prompts, bench.readings)


CASES: Mapping[str, Callable[[Bench], None]] = {
    "decode": decode,
    "prefill": prefill,
    "quantised": quantised,
    "quality": quality_of_auto,
    "eviction": eviction,
    "pool": pool,
    "memory": resident,
    "settings": other_settings,
    "peers": peers_quality,
}


def _quality(bench: Bench, named: Named, questions: tuple[bool, ...]) -> None:
    """Of `named` and of its own implementation's full cache; half of the trials for each kind of question."""
    options, worker = bench.options, bench.workers[named.who]
    full = bench.named("full") if named.who == "ours" else peer("DynamicCache")
    windows = bench.windows(options.windows)
    for one in (full, named):
        at_once = 2 * _AT_ONCE if named.who == "ours" else _AT_ONCE
        quality.measure_perplexity(worker, one, options.half, windows, at_once, bench.readings)
    corpus = text.half_of_corpus(options.half)
    trials = options.trials if named.who == "ours" else options.peer_trials
    needles = text.needles(bench.tokenizer, corpus, trials, _HAYSTACK, seed=1)
    for i, seen in enumerate(questions):
        part = dict(list(enumerate(needles))[i :: len(questions)])
        at_once = 2 * _AT_ONCE if named.who == "ours" else 1
        quality.measure_recall(
            worker, named, options.half, part, seen, bench.tokenizer, at_once, bench.readings
        )


def _quantised(settings: list[Named]) -> list[Named]:
    """Without presses, which act in the prefill alone."""
    return [one for one in settings if "press" not in one.setting]
