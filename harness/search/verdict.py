"""Whether a recorded probe met the SLO, and in which figure it was closest to its limit."""

from dataclasses import dataclass

from harness.metrics.slo import SloOptions, limits_of
from harness.records.reader import Run

# Checks whose failure says that the client, not the server, may have missed; the verdict stands, and it is told.
_OF_THE_CLIENT = ("schedule_lag", "client_capacity", "client_cpu", "event_loop_lag")


@dataclass(frozen=True, slots=True)
class Verdict:
    """met None: there was no limit to meet. text: each limit and what was found. enough: samples for each of them."""

    met: bool | None
    text: str
    enough: bool = True


def judge(run: Run, slo: SloOptions, attainment: float) -> Verdict:
    """Hold a probe's record against the SLO.

    attainment: share of the requests scheduled inside the window that must keep the limits of single requests. A
    probe that did not offer its rate says nothing about the server and so did not meet.
    """
    if run.status == "failed":
        return Verdict(False, run.reason or "failed")
    parts: list[str] = []
    met: list[bool] = []
    enough = True
    for limit in run.summary.get("slo_percentiles") or []:
        value = limit["value_ms"]
        name = limit["key"].removesuffix("_ms").replace("_", " ").upper().replace(" P", " p")
        few = "" if limit["enough"] else f", {limit['samples']} samples"
        shown = "none" if value is None else f"{value:.0f} ms"
        parts.append(f"{name} {shown} (limit {limit['limit_ms']:g}{few})")
        met.append(limit["met"])
        enough &= limit["enough"]
    if limits_of(slo):
        share = run.summary.get("slo_attainment") or 0.0
        parts.append(f"{share:.1%} within every limit (needed {attainment:.1%})")
        met.append(share >= attainment)
    if run.status == "partial":
        parts.append("ended early")
        met.append(False)
    for check in run.validity:
        if check["check"] == "achieved_rate" and check["ok"] is False:
            parts.append(f"{check['value']:.0%} of the rate was sent")
            met.append(False)
        if check["check"] in _OF_THE_CLIENT and check["ok"] is False:
            parts.append(check["problem"])
    limited = bool(limits_of(slo) or run.summary.get("slo_percentiles"))
    return Verdict(all(met) if limited else None, "; ".join(parts), enough)
