"""What the user can say about load; values come from conf/load/*.yaml."""

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass
class LoadOptions:
    """How requests arrive, and what ends the run.

    name: arrival process (closed, constant, poisson).
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
