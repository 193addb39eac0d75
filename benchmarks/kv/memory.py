"""Whether memory really falls: the process's own share of resident memory, beside what the store says it holds."""

from collections.abc import Callable, Sequence

from benchmarks.kv.processes import Worker
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import Named


def measure_memory(
    start: Callable[[], Worker],
    settings: Sequence[Named],
    prompts: Sequence[Sequence[int]],
    readings: Readings,
) -> None:
    """PSS before and after reading the prompts, in a fresh process for each setting."""
    for one in settings:
        with start() as worker:
            short = [list(prompts[0][:64])]  # so that kernels and work space are there before
            first = worker.call("open", prompts=short, setting=one.setting)["handle"]
            worker.call("greedy", handle=first, tokens=2)
            worker.call("close", handle=first)
            before = worker.call("pss_bytes")
            handle = worker.call("open", prompts=[list(ids) for ids in prompts], setting=one.setting)[
                "handle"
            ]
            readings.add(
                "memory",
                one,
                requests=len(prompts),
                held_bytes=worker.call("held_bytes", handle=handle),
                pss_bytes=worker.call("pss_bytes") - before,
            )


def saved(readings: Readings, named: Named, full: Named) -> tuple[float, float] | None:
    """(bytes that PSS is lower by than under `full`, the difference of what is held), latest readings."""
    latest = [list(readings.of("memory", which)) for which in (named, full)]
    if not all(latest):
        return None
    less, more = (found[-1] for found in latest)
    return more["pss_bytes"] - less["pss_bytes"], more["held_bytes"] - less["held_bytes"]
