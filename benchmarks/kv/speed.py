"""Decoding and reading prompts: CPU seconds, settings and implementations in turn, so that a machine that changes
changes for all."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.kv.processes import Worker
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import Named

_STEPS = 8  # of a round; a round's figure is their median
_WARM_UP = 2


def measure_decode(
    workers: Mapping[str, Worker],
    settings: Sequence[Named],
    context: int,
    batch: int,
    rounds: int,
    readings: Readings,
) -> None:
    """Seconds of a decoding step of the batch, whose caches hold `context` tokens each."""
    handles = [
        workers[one.who].call("fill", context=context, batch=batch, setting=one.setting) for one in settings
    ]
    for turn in range(rounds + 1):
        for one, handle in zip(settings, handles, strict=True):
            steps = _STEPS if turn else _WARM_UP
            seconds = workers[one.who].call("decode", handle=handle, steps=steps)
            if turn:
                readings.add("decode", one, context=context, batch=batch, seconds=median(seconds))
    for one, handle in zip(settings, handles, strict=True):
        workers[one.who].call("close", handle=handle)


def measure_prefill(
    workers: Mapping[str, Worker],
    settings: Sequence[Named],
    prompt: Sequence[int],
    rounds: int,
    readings: Readings,
) -> None:
    """Seconds of reading one prompt up to its first token, and what compressing took of them."""
    for turn in range(rounds + 1):
        for one in settings:
            ids = list(prompt) if turn else list(prompt[:64])
            read = workers[one.who].call("open", prompts=[ids], setting=one.setting)
            workers[one.who].call("close", handle=read.pop("handle"))
            if turn:
                readings.add("prefill", one, context=len(ids), **read)


def seconds(readings: Readings, case: str, named: Named, **like: Any) -> float | None:
    """Median over rounds, or None where there is none."""
    found = [reading["seconds"] for reading in readings.of(case, named, **like)]
    return median(found) if found else None


def ratio(readings: Readings, case: str, over: Named, under: Named, **like: Any) -> float | None:
    """Seconds of `over` for one of `under`."""
    above, below = seconds(readings, case, over, **like), seconds(readings, case, under, **like)
    return None if above is None or below is None else above / below


def compress_share(readings: Readings, named: Named) -> float | None:
    """What scoring, evicting and packing take of the time to the first token; median over rounds."""
    found = [one["compress_seconds"] / one["seconds"] for one in readings.of("prefill", named)]
    return median(found) if found else None
