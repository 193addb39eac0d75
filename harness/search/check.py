"""Refuses searches and sweeps that make no sense, before anything starts."""

import math

from harness.config import Config
from harness.core.errors import UsageError
from harness.metrics.slo import limits_of, percentile_limits_of
from harness.search.options import ARRIVALS, ProbeOptions, SearchOptions, SweepRateOptions

_OVER = ("rate", "concurrency")


def check_probes(config: Config, load: ProbeOptions) -> None:
    """Raise UsageError, naming the key; the probes' own loads are checked when they are made."""
    if asked := config.quality.asked():
        raise UsageError(f"load={load.name} measures speed alone. Leave quality={','.join(asked)} out.")
    if config.workload.name == "file":
        raise UsageError(
            f"load={load.name} draws new prompts for each probe, so that no cache helps a later one; a saved plan "
            "cannot be drawn again. Choose another workload."
        )
    if load.rate is not None:
        raise UsageError(f"load.rate={load.rate} has no meaning with load={load.name}, which varies it.")
    if load.arrivals not in ARRIVALS:
        raise UsageError(f"load.arrivals={load.arrivals} is unknown. Choose {' or '.join(ARRIVALS)}.")
    if load.most_in_flight < 1:
        raise UsageError(f"load.most_in_flight={load.most_in_flight}: give at least 1.")
    if not 0 < load.attainment <= 1:
        raise UsageError(f"load.attainment={load.attainment}: give a share above 0 and up to 1.")
    if isinstance(load, SearchOptions):
        _search(config, load)
    if isinstance(load, SweepRateOptions) and not (load.rates and all(0 < r < math.inf for r in load.rates)):
        shown = ",".join(f"{rate:g}" for rate in load.rates)
        raise UsageError(f"load.rates=[{shown}]: give rates above 0, for example load.rates=[1,2,4].")


def _search(config: Config, load: SearchOptions) -> None:
    if not (limits_of(config.slo) or percentile_limits_of(config.slo)):
        raise UsageError(
            "load=search needs limits to meet, for example slo.ttft_p95_ms=500 slo.tpot_p95_ms=50, "
            "or slo=interactive."
        )
    if load.over not in _OVER:
        raise UsageError(f"load.over={load.over} is unknown. Choose {' or '.join(_OVER)}.")
    whole = load.over == "concurrency"
    for key, value in (("first", load.first), ("most", load.most)):
        if value is None:
            continue
        if not 0 < value < math.inf or (whole and value % 1):
            kind = "a whole number of sessions in flight" if whole else "sessions per second, above 0"
            raise UsageError(f"load.{key}={value}: give {kind}.")
    if load.most is not None and load.most < load.first:
        raise UsageError(f"load.most={load.most} is below load.first={load.first}.")
    if whole and load.concurrency is not None:
        raise UsageError("load.concurrency has no meaning with load.over=concurrency, which varies it.")
    if not 0 < load.tolerance < 1:
        raise UsageError(f"load.tolerance={load.tolerance}: give a share between 0 and 1, for example 0.1.")
    if load.probes < 2:
        raise UsageError(f"load.probes={load.probes}: give at least 2, one of them for the repeat.")
    if load.rounds < 1:
        raise UsageError(f"load.rounds={load.rounds}: give at least 1.")
