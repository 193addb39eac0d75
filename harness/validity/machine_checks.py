"""Was anything else at work on this machine, and was it as fast after the run as before?"""

from math import inf

from harness.metrics.pace import drifted
from harness.metrics.window import NS_PER_S
from harness.validity.check import Check, Evidence, Outcome, not_known

_TIMES = (
    *("ttft_ms", "ttft_from_send_ms", "tpot_ms", "itl_ms", "e2e_ms"),
    *("output_tokens_per_s", "requests_per_s"),
)
# The system's and the engine's CPU time are read one after the other, in ticks of 10 ms; less than this says little.
_SHORTEST_S = 1.0


def _quiet_machine(evidence: Evidence, limit: float) -> Outcome:
    rows = evidence.telemetry
    if not {"system_cpu_s", "engine_cpu_s"} <= set(rows):
        return not_known("The CPU time of the machine and of the engine was not sampled.")
    known = rows[evidence.window.holds(rows["ns"])].dropna(subset=["system_cpu_s", "engine_cpu_s"])
    seconds = float(known["ns"].max() - known["ns"].min()) / NS_PER_S if len(known) else 0.0
    if seconds < _SHORTEST_S:
        return not_known(f"The samples of CPU time inside the window span less than {_SHORTEST_S:g} s.")
    change = known.iloc[-1] - known.iloc[0]
    others = float(change["system_cpu_s"] - change["engine_cpu_s"]) / seconds - (evidence.client_cores or 0.0)
    return Outcome(others <= limit, max(others, 0.0))


def _drift_limit(evidence: Evidence) -> float:
    return inf if evidence.drift_limit is None else evidence.drift_limit


def _same_pace(evidence: Evidence, limit: float) -> Outcome:
    before, after = evidence.pace
    if before is None or after is None or limit == inf:
        return not_known(
            "The machine's own speed was not looked at before and after (hardware.drift_limit=null, a server "
            "on another machine, a run that was broken off, or a look that failed, as the run's notes say)."
        )
    ratio = drifted(before, after)
    return Outcome(ratio <= limit, ratio)


QUIET_MACHINE = Check(
    name="quiet_machine",
    title="The machine did nothing else",
    problem="other programs at work",
    spoils=_TIMES,
    limit=0.25,
    unit="cores used by neither engine nor client",
    advice="Stop other programs and measure again; on a shared machine compare repeats, not single runs.",
    measure=_quiet_machine,
)
SAME_PACE = Check(
    name="same_pace",
    title="The machine was as fast after the run as before",
    problem="the machine drifted",
    spoils=_TIMES,
    limit=_drift_limit,
    unit="times between before and after",
    advice="The same work took another time with no engine running: stop other programs, let a hot machine cool or "
    "fix its clock, and measure again; on a machine that others share compare interleaved repeats alone.",
    measure=_same_pace,
)
