"""Was it the engine that was measured, or the client?"""

import numpy as np

from harness.metrics.latency import latencies, measured
from harness.metrics.peaks import busiest_second, most_at_once
from harness.validity.check import Check, Evidence, Outcome, not_known

_LATENCIES = ("ttft_ms", "e2e_ms", "ttft_from_send_ms")
_FROM_SCHEDULE = ("ttft_ms", "e2e_ms")
_RATES = ("output_tokens_per_s", "requests_per_s")
_SHARE_OF_TTFT = 0.05
_LAG_NS = 10_000_000  # the limit of the schedule lag


def _schedule_lag(evidence: Evidence, limit: float) -> Outcome:
    if not evidence.open_loop:
        return not_known("A closed loop has no schedule of its own.")
    values = latencies(evidence.window.requests(evidence.requests))
    lags = values["schedule_lag_ms"].dropna()
    if lags.empty:
        return not_known("No request was sent.")
    median_ttft = values["ttft_ms"].median()
    allowed = max(limit, _SHARE_OF_TTFT * median_ttft) if median_ttft == median_ttft else limit
    p99 = float(np.percentile(lags, 99))
    return Outcome(p99 <= allowed, p99, float(allowed))


def _client_cpu(evidence: Evidence, limit: float) -> Outcome:
    share = evidence.client_cpu_share
    return (
        not_known("The client's CPU time is not known.") if share is None else Outcome(share <= limit, share)
    )


def _event_loop_lag(evidence: Evidence, limit: float) -> Outcome:
    lag = evidence.event_loop_lag_ms
    if lag is None:
        return not_known("The client's event loop was not watched.")
    # A late client sends late; what arrives meanwhile keeps its instant where the kernel takes it.
    return Outcome(lag <= limit, lag, spoils=_FROM_SCHEDULE if evidence.kernel_stamps else None)


def _achieved_rate(evidence: Evidence, limit: float) -> Outcome:
    if not evidence.open_loop:
        return not_known("A closed loop offers no rate.")
    rows = evidence.window.requests(evidence.requests)
    left = rows[rows["sent_ns"].notna()]
    if len(left) < 2:
        return not_known("Fewer than two requests were sent.")
    # Held against the schedule as drawn, not its nominal rate: few random arrivals can lie far from that by chance.
    due, sent = left["scheduled_ns"].astype("int64"), left["sent_ns"].astype("int64")
    # What the lag of single requests allows is no stretch: a trace may have all of them due at once.
    due_ns = int(due.max() - due.min())
    sent_ns = max(due_ns, int(sent.max() - sent.min()) - _LAG_NS)
    share = (due_ns / sent_ns if sent_ns else 1.0) * len(left) / len(rows)
    return Outcome(share >= limit, share)


def _client_capacity(evidence: Evidence, limit: float) -> Outcome:
    if evidence.client_capacity is None:
        return not_known("This machine was not calibrated. Type: python -m harness.calibrate")
    rows = evidence.window.requests(evidence.requests)
    rows = rows[rows["sent_ns"].notna() & rows["end_ns"].notna()]
    if rows.empty:
        return not_known("No request was measured.")
    arrivals = measured(evidence.events)["ns"].to_numpy()
    streams = most_at_once(rows["sent_ns"].to_numpy(), rows["end_ns"].to_numpy())
    load = busiest_second(arrivals), streams
    share = evidence.client_capacity.used(*load)
    if share > limit and not evidence.client_capacity.exceeded(*load):
        why = "More than the calibration tried or its server could send: the client may measure it exactly, or not."
        return Outcome(None, share, why=why)
    if share <= limit and evidence.client_lacks:
        lacked = " and ".join(evidence.client_lacks)
        return Outcome(
            None, share, why=f"When it was calibrated the client had {lacked}, in this run it had not."
        )
    return Outcome(share <= limit, share)


SCHEDULE_LAG = Check(
    name="schedule_lag",
    title="Requests left on time",
    problem="sent late",
    spoils=_LATENCIES,
    limit=10.0,
    unit="ms (p99 of sent − scheduled)",
    advice="The client sent late: lower load.rate, raise load.concurrency, or leave hardware.pin=true.",
    measure=_schedule_lag,
)
CLIENT_CPU = Check(
    name="client_cpu",
    title="The client had CPU to spare",
    problem="client short of CPU",
    spoils=(*_LATENCIES, "tpot_ms", "itl_ms", *_RATES),
    limit=0.8,
    unit="of one core",
    advice="The client was close to its own limit: lower the load, or give the client a core of its own.",
    measure=_client_cpu,
)
EVENT_LOOP_LAG = Check(
    name="event_loop_lag",
    title="The client woke up on time",
    problem="client woke late",
    spoils=(*_LATENCIES, "tpot_ms", "itl_ms"),
    limit=10.0,
    unit="ms (p99)",
    advice="Something else used the client's core: stop other programs, or leave hardware.pin=true.",
    measure=_event_loop_lag,
)
ACHIEVED_RATE = Check(
    name="achieved_rate",
    title="The offered rate was reached",
    problem="rate not reached",
    spoils=(*_LATENCIES, *_RATES),
    limit=0.9,
    unit="of the offered rate",
    advice="Fewer requests left than were asked for: raise or remove load.concurrency, or lower load.rate.",
    measure=_achieved_rate,
)
CLIENT_CAPACITY = Check(
    name="client_capacity",
    title="Within what the client measures exactly",
    problem="more than the client measures exactly",
    spoils=(*_LATENCIES, "tpot_ms", "itl_ms"),
    limit=1.0,
    unit="of what this client measures exactly here",
    advice="Lower the load, or calibrate again on a quiet machine: python -m harness.calibrate.",
    measure=_client_capacity,
)
