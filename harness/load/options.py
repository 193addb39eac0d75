"""What the user can say about load; values come from conf/load/*.yaml.

Each kind of load has options of its own. It turns them into the settings of an arrival process
(`harness.load.arrivals`), which is all that the measuring process gets to see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from harness.load.stages import parse_stages

Settings = dict[str, Any]


@dataclass
class LoadOptions:
    """How requests arrive, and what ends the run: `requests`, `duration_s`, or whichever of both comes first.

    name: kind of load, the name of its file in conf/load.
    concurrency: sessions in flight, thinking ones included (closed loop); in an open loop an upper bound of
        requests in flight, null for none. A wait that this bound causes is counted in `sent - scheduled`,
        never hidden.
    rate: sessions started per second (open loop only).
    requests: stop after this many measured requests; null means all of the plan.
    duration_s: stop scheduling after this many seconds; null means no bound by time.
    drain_s: how long requests in flight may still take once a run bounded by time has closed.
    warmup: requests sent before the measurement, with prompts that are not in it.
    connect_timeout_s, first_token_timeout_s, token_timeout_s, request_timeout_s: limits by phase of a
        request.
    retries: how often a request that was refused (429, 5xx, no connection) is sent again, retry_wait_s after
        that; it keeps its `scheduled` and its first `sent`, so it never looks fast.
    workers: measuring processes that share the load, or auto: 1, unless a calibration says it needs more.
    """

    name: str = MISSING
    concurrency: int | None = MISSING
    rate: float | None = MISSING
    requests: int | None = MISSING
    duration_s: float | None = MISSING
    drain_s: float = MISSING
    warmup: int = MISSING
    connect_timeout_s: float = MISSING
    first_token_timeout_s: float = MISSING
    token_timeout_s: float = MISSING
    request_timeout_s: float = MISSING
    retries: int = MISSING
    retry_wait_s: float = MISSING
    workers: str = MISSING

    @property
    def open_loop(self) -> bool:
        """Whether sessions start by a schedule of their own, whatever the server does."""
        return True

    @property
    def even(self) -> bool:
        """Whether the load is meant to be the same from the first session to the last."""
        return True

    @property
    def bound_s(self) -> float | None:
        """Seconds after which nothing new is scheduled, None for no bound by time."""
        return self.duration_s

    @property
    def peak_rate(self) -> float:
        """The most sessions per second that are ever offered on average; 0 where that is not known."""
        return self.rate or 0.0

    @property
    def offered_sessions(self) -> float | None:
        """Sessions expected until a bound by time, None where there is no such bound or no rate."""
        return None if self.bound_s is None or self.rate is None else self.rate * self.bound_s

    @property
    def replays(self) -> float | None:
        """The factor on the plan's recorded instants where turns keep to them too, None where they do not."""
        return None

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """Settings of the measured phase's arrival process.

        instants: when each session's plan says it begins, in seconds; only a replay looks at them.
        """
        raise NotImplementedError(f"load={self.name} is no single arrival process")

    def warmup_arrival(self, seed: int) -> Settings:
        """The same for the warm-up; one request after another where the measured schedule has no place for it."""
        return {"name": "closed", "concurrency": 1, "ramp_s": 0.0}


@dataclass
class ClosedOptions(LoadOptions):
    """Closed loop. ramp_s: its slots open one after another over this time."""

    ramp_s: float = MISSING

    @property
    def open_loop(self) -> bool:
        """Never: arrivals follow the server."""
        return False

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """A fixed number of slots."""
        return {"name": "closed", "concurrency": self.concurrency, "ramp_s": self.ramp_s}

    def warmup_arrival(self, seed: int) -> Settings:
        """As measured, all slots at once."""
        return {"name": "closed", "concurrency": self.concurrency, "ramp_s": 0.0}


@dataclass
class ConstantOptions(LoadOptions):
    """Constant rate."""

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """Evenly spaced instants."""
        return {"name": "constant", "rate": self.rate}

    def warmup_arrival(self, seed: int) -> Settings:
        """As measured."""
        return self.arrival(seed, ())


@dataclass
class PoissonOptions(LoadOptions):
    """Poisson process."""

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """Gaps of the exponential distribution."""
        return {"name": "poisson", "rate": self.rate, "seed": seed}

    def warmup_arrival(self, seed: int) -> Settings:
        """As measured."""
        return self.arrival(seed, ())


@dataclass
class GammaOptions(LoadOptions):
    """Bursts. cv: coefficient of variation of the gaps; 1 is a Poisson process, more comes in bursts."""

    cv: float = MISSING

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """Gaps of the gamma distribution."""
        return {"name": "gamma", "rate": self.rate, "cv": self.cv, "seed": seed}


@dataclass
class RampOptions(LoadOptions):
    """The rate goes linearly from `rate` to `rate_end` over `ramp_s` seconds, which also bound the run.

    arrivals: even (the same distance in expected arrivals) or poisson.
    """

    rate_end: float = MISSING
    ramp_s: float = MISSING
    arrivals: str = MISSING

    @property
    def even(self) -> bool:
        """It changes on purpose."""
        return False

    @property
    def bound_s(self) -> float | None:
        """The ramp, or `duration_s` where that is set: it may cut the ramp short or stay at its end."""
        return self.duration_s if self.duration_s is not None else self.ramp_s

    @property
    def peak_rate(self) -> float:
        """The larger end."""
        return max(self.rate or 0.0, self.rate_end)

    @property
    def offered_sessions(self) -> float | None:
        """The integral of the rate: a part of the ramp, or all of it and what follows at its end."""
        rate, bound_s = self.rate or 0.0, self.bound_s or 0.0
        rising_s = min(bound_s, self.ramp_s)
        reached = rate + (self.rate_end - rate) * rising_s / self.ramp_s
        return (rate + reached) / 2 * rising_s + self.rate_end * (bound_s - rising_s)

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """The inverse of the integrated rate."""
        return {
            "name": "ramp",
            "rate": self.rate,
            "rate_end": self.rate_end,
            "ramp_s": self.ramp_s,
            "seed": _drawn(self.arrivals, seed),
        }


@dataclass
class StepsOptions(LoadOptions):
    """The rate goes in steps, which also bound the run. stages: RATExSECONDS each; arrivals as in a ramp."""

    stages: list[str] = MISSING
    arrivals: str = MISSING

    @property
    def even(self) -> bool:
        """It changes on purpose."""
        return False

    @property
    def bound_s(self) -> float | None:
        """All stages, or `duration_s` where that is set: it may cut them short or stay at the last one."""
        if self.duration_s is not None:
            return self.duration_s
        return sum(seconds for _, seconds in parse_stages(self.stages))

    @property
    def peak_rate(self) -> float:
        """That of the highest stage."""
        return max(rate for rate, _ in parse_stages(self.stages))

    @property
    def offered_sessions(self) -> float | None:
        """The integral of the rate: the stages as far as the bound lets them come, the last one staying."""
        stages, left_s, offered = parse_stages(self.stages), self.bound_s or 0.0, 0.0
        for rate, seconds in stages:
            offered += rate * min(seconds, left_s)
            left_s = max(0.0, left_s - seconds)
        return offered + stages[-1][0] * left_s

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """The inverse of the integrated rate."""
        return {
            "name": "steps",
            "stages": parse_stages(self.stages),
            "seed": _drawn(self.arrivals, seed),
        }


@dataclass
class TraceOptions(LoadOptions):
    """Replay of the instants that the plan holds. time_scale: factor on all of them (0.5: twice as fast)."""

    time_scale: float = MISSING

    @property
    def even(self) -> bool:
        """It changes on purpose."""
        return False

    @property
    def replays(self) -> float | None:
        """Recorded instants rule, whatever the think time that lay between them."""
        return self.time_scale

    def arrival(self, seed: int, instants: Sequence[float | None]) -> Settings:
        """The plan's own instants; `harness.load.check.check_instants` has seen that there are some."""
        return {
            "name": "trace",
            "instants": [(instant or 0.0) * self.time_scale for instant in instants],
        }


def _drawn(arrivals: str, seed: int) -> int | None:
    return seed if arrivals == "poisson" else None
