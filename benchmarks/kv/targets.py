"""The targets, each with what was measured of it and whether it is met."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.kv import memory, quality, speed
from benchmarks.kv.intervals import Interval
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import Named, peer

CONTEXTS = (1024, 2048, 4096, 8192)
MOST_MB = 9.6
MOST_LOSS = 1.015  # perplexity over full
_LEAST_WINDOWS, _LEAST_TRIALS = 8, 128


@dataclass(frozen=True, slots=True)
class Target:
    """case: which measures it. measured: in words, or None where it was not. met: None likewise."""

    case: str
    wanted: str
    measured: str | None
    met: bool | None


def all_targets(readings: Readings, named: Callable[[str], Named], half: str) -> Iterator[Target]:
    """named: this project's settings by name. half: which the quality is judged on."""
    dynamic, full = peer("DynamicCache"), named("full")
    for batch, least in ((1, 1.6), (8, 2.6)):
        found = speed.ratio(readings, "decode", dynamic, full, context=2048, batch=batch)
        wanted = f"decode at 2048, batch {batch}: at least {least} × transformers' DynamicCache"
        yield _of("decode", wanted, found, "{:.2f} ×", lambda value, least=least: value >= least)
    found = speed.ratio(readings, "prefill", full, dynamic, context=2048)
    yield _of(
        "prefill", "prefill of 2048: no slower than transformers", found, "{:.2f} of its time", _at_most(1.0)
    )
    for name in ("int8", "int4"):
        for context in CONTEXTS:
            found = speed.ratio(readings, "decode", named(name), full, context=context, batch=1)
            most, words = (1.0, "faster than") if context >= 4096 else (1.05, "at most 5 % slower than")
            wanted = f"decode at {context}: {name} {words} full"
            yield _of("quantised", wanted, found, "{:.3f} of its time", _at_most(most))
    yield _of(
        "quality",
        f"auto: at most {MOST_MB} MB held at 2048",
        quality.held_bytes(readings, named("auto"), half),
        "{:,.0f} B",
        _at_most(MOST_MB * 1e6),
    )
    yield _loss(readings, named("auto"), full, half, "quality")
    yield _recall(readings, named("auto"), half, None, 0.85, "quality")
    yield _loss(readings, named("auto at 50 %"), full, half, "eviction")
    yield _recall(readings, named("auto at 50 %"), half, False, 0.75, "eviction")
    found = speed.compress_share(readings, named("auto at 50 %"))
    wanted = "auto at 50 %: scoring and evicting at most 1.5 % of TTFT"
    yield _of("prefill", wanted, found, "{:.2%}", _at_most(0.015))
    yield from _pool(readings, named("auto"), named("full16"))
    yield _memory(readings, named("int4"), full)


def _of(case: str, wanted: str, found: float | None, form: str, met: Callable[[float], bool]) -> Target:
    if found is None:
        return Target(case, wanted, None, None)
    return Target(case, wanted, form.format(found), met(found))


def _at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def _loss(readings: Readings, named: Named, full: Named, half: str, case: str) -> Target:
    wanted = (
        f"{named.name}: perplexity at most {MOST_LOSS - 1:.1%} over full (upper end of the 95 % interval)"
    )
    found = quality.ratio_to_full(readings, named, full, half)
    if found is None:
        return Target(case, wanted, None, None)
    windows = len(list(readings.of("perplexity", named, half=half)))
    enough = windows >= _LEAST_WINDOWS
    measured = f"{_percent_over(found)}, {windows} windows"
    return Target(case, wanted, measured, enough and found.high <= MOST_LOSS)


def _percent_over(ratio: Interval) -> str:
    return f"{ratio.value - 1:+.2%} ({ratio.low - 1:+.2%} … {ratio.high - 1:+.2%})"


def _recall(
    readings: Readings, named: Named, half: str, seen: bool | None, least: float, case: str
) -> Target:
    question = "question unseen" if seen is False else "question known or not"
    wanted = f"{named.name}: needle, {question}, at least {least:.0%}"
    found = quality.recall(readings, named, half, seen)
    if found is None:
        return Target(case, wanted, None, None)
    trials = len(list(readings.of("recall", named, half=half, **({} if seen is None else {"seen": seen}))))
    measured = f"{found.value:.1%} ({found.low:.1%} … {found.high:.1%}), {trials} trials"
    return Target(case, wanted, measured, trials >= _LEAST_TRIALS and found.value >= least)


def _pool(readings: Readings, named: Named, full16: Named) -> Iterator[Target]:
    latest = [list(readings.of("pool", which)) for which in (named, full16)]
    wanted = "one pool: auto runs at least 4 × as many requests of 2048 tokens at once as full 16-bit KV"
    faster = "one pool: auto's total throughput is higher than full 16-bit KV's"
    if not all(latest):
        yield Target("pool", wanted, None, None)
        yield Target("pool", faster, None, None)
        return
    ours, theirs = (found[-1] for found in latest)
    times = ours["at_once"] / theirs["at_once"]
    yield Target("pool", wanted, f"{ours['at_once']} beside {theirs['at_once']}", times >= 4)
    rates = [one["tokens"] / one["seconds"] for one in (ours, theirs)]
    yield Target("pool", faster, f"{rates[0]:.1f} beside {rates[1]:.1f} tokens/s", rates[0] > rates[1])


def _memory(readings: Readings, int4: Named, full: Named) -> Target:
    wanted = "PSS after 8 × 2048: int4 saves at least 80 % of the difference in bytes held"
    found = memory.saved(readings, int4, full)
    if found is None:
        return Target("memory", wanted, None, None)
    pss, held = found
    return Target("memory", wanted, f"{pss / 1e6:.0f} of {held / 1e6:.0f} MB", pss >= 0.8 * held)
