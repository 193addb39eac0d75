"""What a machine's own speed did from the first of several runs to the last, in words."""

from collections.abc import Iterator, Sequence

from harness.metrics.pace import Pace, drifted, slower
from harness.records.paths import pick
from harness.records.reader import Run


def drift_words(runs: Sequence[Run]) -> str | None:
    """A sentence where one machine was not as fast at its last look as before the first run; None where it was.

    None also where nobody knows: runs of several machines, looks at other cores (how much each of them copies, and
    with how many others it shares the memory, differ), or no look but one. What is allowed is the limit of the last
    run.
    """
    looked = sorted((run for run in runs if run.pace), key=lambda run: run.started_at)
    looks = [(repr(pick(run.fingerprint, "machine")), look) for run in looked for look in _looks(run)]
    if len({(machine, look.cores) for machine, look in looks}) != 1:
        return None
    limit = pick(looked[-1].config, "hardware.drift_limit")
    first, last = looks[0][1], looks[-1][1]
    if limit is None or drifted(first, last) <= limit:
        return None
    ratio = slower(first, last)
    word, change = ("slower", ratio - 1) if ratio > 1 else ("faster", 1 - ratio)
    return (
        f"The machine itself was {100 * change:.0f} % {word} at the end of these runs than at their beginning: "
        "what lies between runs that are far apart in time may be the machine; repeats in turns share it."
    )


def _looks(run: Run) -> Iterator[Pace]:
    """Before and after, so far as there are: a run that broke off has no second, one of them may have failed."""
    for name in ("before", "after"):
        if found := run.pace.get(name):
            yield Pace.from_record(found)
