"""Refuses load options that make no sense, before anything starts."""

import math
from collections.abc import Sequence

from harness.core.errors import UsageError
from harness.core.requests import PlannedRequest
from harness.load.arrivals import NAMES
from harness.load.options import (
    ClosedOptions,
    GammaOptions,
    LoadOptions,
    RampOptions,
    StepsOptions,
    TraceOptions,
)
from harness.load.stages import parse_stages

_TIMEOUTS = ("connect_timeout_s", "first_token_timeout_s", "token_timeout_s", "request_timeout_s")
_ARRIVALS = ("even", "poisson")
_ENOUGH = 0.8  # of the sessions expected: random arrivals may be fewer


def check_load(load: LoadOptions) -> None:
    """Raise UsageError, naming the key, where the options contradict themselves or each other."""
    if load.name not in NAMES:
        raise UsageError(
            f"load.name={load.name} is not an arrival process. Choose one of {', '.join(NAMES)}."
        )
    match load:
        case ClosedOptions():
            _closed(load)
        case RampOptions():
            _ramp(load)
        case StepsOptions():
            _no_rate(load, "the stages have theirs")
            parse_stages(load.stages)
            _arrivals(load.arrivals)
        case TraceOptions():
            _no_rate(load, "the trace has its own; load.time_scale changes it")
            _positive("load.time_scale", load.time_scale, "factor on the recorded instants")
        case _:
            _positive("load.rate", load.rate, f"load={load.name} needs sessions per second")
            if isinstance(load, GammaOptions):
                _positive("load.cv", load.cv, "coefficient of variation of the gaps (1: Poisson)")
    if load.open_loop and load.concurrency is not None and load.concurrency < 1:
        raise UsageError(
            f"load.concurrency={load.concurrency} would send nothing. Give at least 1, or null for no bound."
        )
    if load.requests is not None and load.requests < 1:
        raise UsageError(
            f"load.requests={load.requests} measures nothing. Give at least 1, or null for the plan."
        )
    if load.duration_s is not None and not load.duration_s > 0:
        raise UsageError(f"load.duration_s={load.duration_s} is no duration. Give seconds above 0, or null.")
    for key in ("drain_s", "warmup", "retries", "retry_wait_s"):
        if getattr(load, key) < 0:
            raise UsageError(f"load.{key}={getattr(load, key)} is negative. Give 0 or more.")
    if load.workers != "auto" and not (load.workers.isdecimal() and int(load.workers) >= 1):
        raise UsageError(f"load.workers={load.workers} is no number of processes. Give 1 or more, or auto.")
    for key in _TIMEOUTS:
        if not getattr(load, key) > 0:
            raise UsageError(f"load.{key}={getattr(load, key)} leaves no time. Give seconds above 0.")


def check_instants(load: LoadOptions, requests: Sequence[PlannedRequest]) -> None:
    """Raise UsageError where the load replays instants and the plan holds none."""
    if isinstance(load, TraceOptions) and any(request.arrival_s is None for request in requests):
        raise UsageError(
            "load=trace replays recorded instants, and this workload has none. "
            "Choose workload=trace workload.path=FILE, or another load."
        )


def short_plan(load: LoadOptions, sessions: int) -> str | None:
    """What to say where a plan of so many sessions is over well before the load's bound by time, else None."""
    expected = load.offered_sessions
    if expected is None or load.requests is not None or sessions >= _ENOUGH * expected:
        return None
    return (
        f"The plan holds {sessions} sessions, and about {expected:.0f} are due within the {load.bound_s:g} s of "
        f"load={load.name}: the run will end by count. Raise workload.requests to load it for the whole time."
    )


def _closed(load: ClosedOptions) -> None:
    if load.concurrency is None or load.concurrency < 1:
        raise UsageError(
            f"load.concurrency={_shown(load.concurrency)}: a closed loop needs at least 1 session in flight. "
            "Give load.concurrency=1 or more."
        )
    if load.rate is not None:
        raise UsageError(
            f"load.rate={load.rate} has no meaning in a closed loop, whose rate follows the server. "
            "Leave it out, or choose load=constant or load=poisson."
        )
    if not 0 <= load.ramp_s < math.inf:
        raise UsageError(
            f"load.ramp_s={load.ramp_s} is no time to open slots in. Give seconds, 0 for at once."
        )


def _ramp(load: RampOptions) -> None:
    for key, rate in (("load.rate", load.rate), ("load.rate_end", load.rate_end)):
        if rate is None or not 0 <= rate < math.inf:
            raise UsageError(f"{key}={_shown(rate)}: a ramp needs sessions per second, 0 or more.")
    if not load.peak_rate:
        raise UsageError("load.rate=0.0 and load.rate_end=0.0 would send nothing. Give one of them above 0.")
    _positive("load.ramp_s", load.ramp_s, "seconds from load.rate to load.rate_end")
    _arrivals(load.arrivals)


def _arrivals(arrivals: str) -> None:
    if arrivals not in _ARRIVALS:
        raise UsageError(f"load.arrivals={arrivals} is unknown. Choose {' or '.join(_ARRIVALS)}.")


def _positive(key: str, value: float | None, what: str) -> None:
    if value is None or not 0 < value < math.inf:
        raise UsageError(f"{key}={_shown(value)}: {what}. Give a number above 0, for example {key}=2.")


def _no_rate(load: LoadOptions, why: str) -> None:
    if load.rate is not None:
        raise UsageError(f"load.rate={load.rate} has no meaning with load={load.name}: {why}.")


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
