"""What a machine's own speed did from the first of several runs to the last, in words."""

from collections.abc import Sequence

from harness.metrics.pace import Pace, drifted, slower
from harness.records.paths import pick
from harness.records.reader import Run


def drift_words(runs: Sequence[Run]) -> str | None:
    """A sentence where one machine was not as fast after the last run as before the first; None where it was.

    None also where nobody knows: runs of several machines, or without a look at either end. What is allowed is the
    limit of the last run.
    """
    looked = sorted((run for run in runs if run.pace), key=lambda run: run.started_at)
    machines = {repr(pick(run.fingerprint, "machine")) for run in looked}
    if not looked or len(machines) > 1:
        return None
    first, last = looked[0].pace.get("before"), looked[-1].pace.get("after")
    limit = pick(looked[-1].config, "hardware.drift_limit")
    if not first or not last or limit is None:
        return None
    before, after = Pace(**first), Pace(**last)
    if drifted(before, after) <= limit:
        return None
    ratio = slower(before, after)
    word, change = ("slower", ratio - 1) if ratio > 1 else ("faster", 1 - ratio)
    return (
        f"The machine itself was {100 * change:.0f} % {word} after the last of these runs than before the first: "
        "what lies between runs that are far apart in time may be the machine; repeats in turns share it."
    )
