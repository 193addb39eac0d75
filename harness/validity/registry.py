"""Every check, in the order a report shows them. A new one is declared in its module and named here."""

from typing import Any

from harness.validity.check import Check, Evidence
from harness.validity.client_checks import (
    ACHIEVED_RATE,
    CLIENT_CAPACITY,
    CLIENT_CPU,
    EVENT_LOOP_LAG,
    SCHEDULE_LAG,
)
from harness.validity.machine_checks import QUIET_MACHINE, SAME_PACE
from harness.validity.run_checks import (
    ENGINE_ALIVE,
    ENOUGH_REQUESTS,
    FOREIGN_CACHE_HITS,
    MEMORY_SAMPLES,
    NO_ERRORS,
    STEADY_STATE,
    WARMUP_ERRORS,
    WARMUP_OVERLAP,
)
from harness.validity.sample_checks import EVENTS_PER_READ, NO_RETRIES, TAIL_SAMPLES
from harness.validity.token_checks import OUTPUT_LENGTHS, PROMPT_LENGTHS, TOKEN_COUNTS

CHECKS: tuple[Check, ...] = (
    NO_ERRORS,
    NO_RETRIES,
    ENOUGH_REQUESTS,
    TAIL_SAMPLES,
    ENGINE_ALIVE,
    OUTPUT_LENGTHS,
    TOKEN_COUNTS,
    PROMPT_LENGTHS,
    WARMUP_ERRORS,
    WARMUP_OVERLAP,
    FOREIGN_CACHE_HITS,
    STEADY_STATE,
    QUIET_MACHINE,
    SAME_PACE,
    SCHEDULE_LAG,
    ACHIEVED_RATE,
    CLIENT_CAPACITY,
    CLIENT_CPU,
    EVENT_LOOP_LAG,
    EVENTS_PER_READ,
    MEMORY_SAMPLES,
)


def evaluate(evidence: Evidence) -> list[dict[str, Any]]:
    """Every check as an entry of run.json's `validity`; ok is None where it could not be evaluated."""
    return [check.record(evidence) for check in CHECKS]
