"""Whether a recorded probe met the SLO, and in which figure it was closest to its limit."""

from dataclasses import dataclass

from harness.metrics.slo import SloOptions, limits_of
from harness.records.reader import Run

# Checks whose failure says that the client, not the server, may have missed; the verdict stands, and it is told.
_OF_THE_CLIENT = ("schedule_lag", "client_capacity", "client_cpu", "event_loop_lag")


@dataclass(frozen=True, slots=True)
class Verdict:
    """met None: there was no limit to meet. figures: each limit and what was found. remarks: what else counts.

    enough: there were samples for each of the limits.
    """

    met: bool | None
    figures: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    enough: bool = True

    @property
    def text(self) -> str:
        """All of it on one line."""
        return "; ".join((*self.figures, *self.remarks))


def judge(run: Run, slo: SloOptions, attainment: float) -> Verdict:
    """Hold a probe's record against the SLO.

    attainment: share of the requests scheduled inside the window that must keep the limits of single requests. A
    probe that did not offer its rate says nothing about the server and so did not meet.
    """
    if run.status == "failed":
        return Verdict(False, (), (run.reason or "failed",))
    figures: list[str] = []
    remarks: list[str] = []
    met: list[bool] = []
    enough = True
    for limit in run.summary.get("slo_percentiles") or []:
        value = limit["value_ms"]
        name = limit["key"].removesuffix("_ms").replace("_", " ").upper().replace(" P", " p")
        few = "" if limit["enough"] else f", {limit['samples']} samples"
        shown = "none" if value is None else f"{value:.0f} ms"
        figures.append(f"{name} {shown} (limit {limit['limit_ms']:g}{few})")
        met.append(limit["met"])
        enough &= limit["enough"]
    if limits_of(slo):
        share = run.summary.get("slo_attainment") or 0.0
        figures.append(f"{share:.1%} within every limit (needed {attainment:.1%})")
        met.append(share >= attainment)
    if run.status == "partial":
        remarks.append("ended early")
        met.append(False)
    for check in run.validity:
        if check["check"] == "achieved_rate" and check["ok"] is False:
            remarks.append(f"{check['value']:.0%} of the rate was sent")
            met.append(False)
        if check["check"] in _OF_THE_CLIENT and check["ok"] is False:
            remarks.append(check["problem"])
    limited = bool(limits_of(slo) or run.summary.get("slo_percentiles"))
    return Verdict(all(met) if limited else None, tuple(figures), tuple(remarks), enough)
