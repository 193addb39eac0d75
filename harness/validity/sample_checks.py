"""Is there enough of it, seen finely enough, for what the figures claim?"""

from harness.metrics.latency import measured, succeeded
from harness.metrics.percentiles import FEWEST_SAMPLES
from harness.metrics.summary import retried
from harness.validity.check import Check, Evidence, Outcome, not_known

_SHOWN_FROM = FEWEST_SAMPLES[99.0]


def _tail_samples(evidence: Evidence, limit: float) -> Outcome:
    count = int(succeeded(evidence.window.requests(evidence.requests)).sum())
    if count < _SHOWN_FROM:
        return not_known(f"No p99 is shown of fewer than {_SHOWN_FROM} requests.")
    return Outcome(count >= limit, float(count))


def _events_per_read(evidence: Evidence, limit: float) -> Outcome:
    rows = measured(evidence.requests)
    rows = rows[succeeded(rows)]
    reads = float(rows["reads"].sum())
    if not reads:
        return not_known("No event was read.")
    share = float(rows["events"].sum()) / reads
    return Outcome(share <= limit, share)


def _retries(evidence: Evidence, limit: float) -> Outcome:
    rows = evidence.window.requests(evidence.requests)
    if rows.empty or "retries" not in rows:
        return not_known("It is not known whether requests were sent again.")
    share = float(retried(rows).mean())
    return Outcome(share <= limit, share)


TAIL_SAMPLES = Check(
    name="tail_samples",
    title="Enough requests for a p99",
    problem="p99 of few requests",
    spoils=("ttft_ms.p99", "ttft_from_send_ms.p99", "tpot_ms.p99", "e2e_ms.p99"),
    limit=300,
    unit="successful requests",
    advice="The p99 is nearly the maximum: measure 300 requests or more, or look at p90.",
    measure=_tail_samples,
)
EVENTS_PER_READ = Check(
    name="events_per_read",
    title="Events were read one by one",
    problem="events read in bunches",
    spoils=("itl_ms",),
    limit=1.25,
    unit="events a read",
    advice="The server sends several events at once, or the client fell behind (see client_cpu): read TPOT instead.",
    measure=_events_per_read,
)
NO_RETRIES = Check(
    name="no_retries",
    title="No request was sent again",
    problem="requests sent again",
    spoils=("requests_per_s", "output_tokens_per_s"),
    limit=0.0,
    unit="of requests sent again after an error",
    advice="The server refused requests: lower the load, or see what it refuses with load.retries=0.",
    measure=_retries,
)
