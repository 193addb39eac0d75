"""What a check is, and what it may look at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.calibrate.kept import Capacity
from harness.metrics.pace import Pace
from harness.metrics.window import Window


@dataclass(frozen=True)
class Evidence:
    """Everything known of a run when it has ended; None for what nobody could know.

    requests, events, telemetry: the run's tables, warm-up included. open_loop: requests came at a rate of
    their own.
    client_cpu_share: CPU of the measuring process as a share of one core, over the window; of several, the
    busiest one's. client_cores: that of all of them together.
    event_loop_lag_ms: p99 of how late its event loop woke up. kernel_stamps: what arrived has the kernel's instant,
    whenever the client read it. engine_alive: it still answered when the
    window had closed (None: somebody else's server was not asked). shareable_prompt_tokens: prompt tokens
    that the plan itself lets a prefix cache find (`prefixes.shareable_tokens`). client_capacity: what a
    calibration of this machine found, None where there was none. client_lacks: what the client had then and did
    not have in this run. even_load: the load meant to be the same from the first request to the last. pace: what a
    fixed piece of work took on this machine before and after. drift_limit: how many times longer it may take one time
    than the other.
    """

    requests: pd.DataFrame
    events: pd.DataFrame
    telemetry: pd.DataFrame
    window: Window
    open_loop: bool
    client_cpu_share: float | None = None
    client_cores: float | None = None
    event_loop_lag_ms: float | None = None
    kernel_stamps: bool = False
    engine_alive: bool | None = None
    shareable_prompt_tokens: int | None = None
    client_capacity: Capacity | None = None
    client_lacks: tuple[str, ...] = ()
    even_load: bool = True
    pace: tuple[Pace | None, Pace | None] = (None, None)
    drift_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found.

    ok None: it could not be evaluated, and `why` says the reason. limit, spoils: in place of the declared ones,
    where they depend on the run.
    """

    ok: bool | None
    value: float | None = None
    limit: float | None = None
    why: str | None = None
    spoils: tuple[str, ...] | None = None


def not_known(why: str) -> Outcome:
    """The outcome of a check that had nothing to look at."""
    return Outcome(None, why=why)


@dataclass(frozen=True, slots=True)
class Check:
    """One declaration: what is looked at, what a failure spoils, and what to do then.

    title: the healthy state in a few words; problem: the other one.
    spoils: keys of run.json's summary, nested ones with a dot.
    limit and unit: what `value` is held against; a function of the evidence where each run brings its own. advice:
    what to do where it fails.
    """

    name: str
    title: str
    problem: str
    spoils: tuple[str, ...]
    limit: float | Callable[[Evidence], float]
    unit: str
    advice: str
    measure: Callable[[Evidence, float], Outcome]

    def record(self, evidence: Evidence) -> dict[str, Any]:
        """Evaluate it, as an entry of run.json's `validity`."""
        limit = self.limit(evidence) if callable(self.limit) else self.limit
        outcome = self.measure(evidence, limit)
        return {
            "check": self.name,
            "title": self.title,
            "problem": self.problem,
            "ok": None if outcome.ok is None else bool(outcome.ok),
            "value": outcome.value,
            "limit": limit if outcome.limit is None else outcome.limit,
            "unit": self.unit,
            "spoils": list(self.spoils if outcome.spoils is None else outcome.spoils),
            "advice": self.advice,
            "why": outcome.why,
        }
