"""A whole calibration: the loads that matter one after the other, then the two limits."""

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass

from harness.calibrate.kept import Capacity
from harness.calibrate.limits import highest, rate_load, streams_load
from harness.calibrate.loads import Load, Reading, drive
from harness.calibrate.server import compiled

_OTHER_FILES = 100  # that a process has open beside its connections


@dataclass(frozen=True, slots=True)
class _Pace:
    """How long each probe takes, where the search begins and how far and how finely it goes."""

    seconds: float
    first_rate: float
    most_tokens_per_s: float
    rate_halvings: int
    ramp_s: float
    first_streams: float
    most_streams: float
    stream_halvings: int


_WHOLE = _Pace(2.0, 40_000, 640_000, 3, 2.0, 1_000, 16_000, 1)
_QUICK = _Pace(1.0, 80_000, 160_000, 1, 1.0, 1_000, 2_000, 1)


def language_in_use(asked: str | None) -> str:
    """The truth server that will run: the one asked for, else C where it compiles, else Python."""
    return asked or ("c" if compiled() else "python")


def usual_loads(quick: bool) -> list[Load]:
    """What people measure: a few streams of a reader's speed, busy engines, random arrivals."""
    seconds = 1 if quick else 4
    return [
        Load("16 streams × 50 tokens/s", 16 * seconds, 50, 20_000, options={"concurrency": 16}),
        Load("16 streams × 312 tokens/s", 16 * seconds * 4, 78, 3_200, options={"concurrency": 16}),
        rate_load(32_000, seconds),
        Load(
            "Poisson, 100 requests/s × 10 tokens",
            100 * seconds,
            10,
            5_000,
            kind="poisson",
            options={"rate": 100.0},
        ),
    ]


def calibration(quick: bool, language: str, on_load: Callable[[str], None]) -> tuple[list[Reading], Capacity]:
    """All readings in order, and what the client can take. `on_load` is told each load's title before it runs."""

    def run(load: Load) -> Reading:
        on_load(load.title)
        return drive(load, language).reading

    readings = [run(load) for load in usual_loads(quick)]
    pace = _QUICK if quick else _WHOLE
    share = 8 if language == "python" else 1  # of the load that the server in C carries
    rates = highest(
        lambda rate: run(rate_load(rate, pace.seconds)),
        pace.first_rate / share,
        pace.most_tokens_per_s,
        pace.rate_halvings,
        "tokens_per_s",
    )
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    streams = highest(
        lambda count: run(streams_load(round(count), pace.ramp_s)),
        pace.first_streams / share,
        min(pace.most_streams, files - _OTHER_FILES),
        pace.stream_halvings,
        "streams",
    )
    capacity = Capacity(
        tokens_per_s=rates.value,
        tokens_limited_by=rates.limited_by,
        streams=round(streams.value),
        streams_limited_by=streams.limited_by,
        own_core=len(os.sched_getaffinity(0)) > 1,
        realtime=all(reading.realtime for reading in readings),
    )
    return [*readings, *rates.readings, *streams.readings], capacity
