"""How many measuring processes a load needs."""

import math

from harness.calibrate.kept import Capacity
from harness.core.requests import Plan
from harness.load.options import LoadOptions


def worker_count(load: LoadOptions, plan: Plan, capacity: Capacity | None, cores: int) -> int:
    """load.workers as a number. auto: 1, unless a calibration of this machine says that the load needs more.

    It needs as many as bring its expected token rate (of an open loop) and its streams under what one process
    measures exactly; never more than all cores but one, on which the engine or the server's network has to run.
    """
    if load.workers != "auto":
        return int(load.workers)
    if capacity is None:
        return 1
    needed = capacity.used(_tokens_per_s(load, plan), load.concurrency or 0)
    return int(min(max(1, cores - 1), max(1, math.ceil(needed)))) if math.isfinite(needed) else 1


def _tokens_per_s(load: LoadOptions, plan: Plan) -> float:
    """What an open loop is expected to make an engine generate at its busiest; 0 for a closed one."""
    sessions = len({request.session for request in plan.requests})
    if not load.open_loop or not sessions:
        return 0.0
    return load.peak_rate * sum(request.max_output_tokens for request in plan.requests) / sessions
