"""A client's report beside what the truth server knows of the same run."""

from dataclasses import dataclass

import numpy as np

from benchmarks.peer_reports import Of, Report
from harness.calibrate.loads import Load
from harness.calibrate.log import TrueLog, TrueRequest
from harness.core.errors import HarnessError


@dataclass(frozen=True, slots=True)
class Reading:
    """One client on one load; latencies in ms, as it reports them and as the server knows them.

    itl_p99 and true_itl_p99 are of what itl_of says. cpu_us: CPU time for each token. tokens_per_s: from the first
    request's arrival at the server to the last token sent. lost: requests that it did not report as done.
    """

    case: str
    client: str
    ttft_mean: float
    ttft_p99: float
    itl_mean: float
    itl_p99: float
    true_ttft_mean: float
    true_ttft_p99: float
    true_itl_mean: float
    true_itl_p99: float
    itl_of: Of
    cpu_us: float
    tokens_per_s: float
    lost: int


def reading_of(case: str, client: str, report: Report, log: TrueLog, load: Load, cpu_us: float) -> Reading:
    """Compare a report with the load's own requests in `log`: the last ones, since a client may try others first.

    Raises HarnessError where there are none.
    """
    own = [one for one in log.requests if one.asked == len(one.sends) == load.tokens][-load.requests :]
    if not own:
        raise HarnessError("the server streamed no request of this load to its end")
    ttft = np.array([one.sends[0] - one.received_ns for one in own]) / 1e6
    itl = _gaps(own, report.itl_of)
    seconds = (max(one.sends[-1] for one in own) - min(one.received_ns for one in own)) / 1e9
    return Reading(
        case=case,
        client=client,
        ttft_mean=report.ttft_mean,
        ttft_p99=report.ttft_p99,
        itl_mean=report.itl_mean,
        itl_p99=report.itl_p99,
        true_ttft_mean=float(ttft.mean()),
        true_ttft_p99=float(np.percentile(ttft, 99)),
        true_itl_mean=float(itl.mean()),
        true_itl_p99=float(np.percentile(itl, 99)),
        itl_of=report.itl_of,
        cpu_us=cpu_us,
        tokens_per_s=sum(len(one.sends) for one in own) / seconds,
        lost=load.requests - report.completed,
    )


def tokens_sent(log: TrueLog) -> int:
    """All tokens of a run."""
    return sum(len(one.sends) for one in log.requests)


def _gaps(requests: list[TrueRequest], of: Of) -> np.ndarray:
    """Gaps between tokens in ms: each one, or the mean of each request."""
    if of == "gaps":
        return np.concatenate([np.diff(one.sends) for one in requests]) / 1e6
    return np.array([(one.sends[-1] - one.sends[0]) / (len(one.sends) - 1) for one in requests]) / 1e6
