"""The most that a run asked of the measuring client at any time."""

import numpy as np


def most_at_once(starts_ns: np.ndarray, ends_ns: np.ndarray) -> int:
    """The most requests under way at the same time; one that starts as another ends counts beside it."""
    instants = np.concatenate([starts_ns, ends_ns]).astype("int64")
    steps = np.concatenate([np.ones(len(starts_ns), dtype=int), -np.ones(len(ends_ns), dtype=int)])
    order = np.lexsort((-steps, instants))
    return int(np.cumsum(steps[order]).max(initial=0))


def busiest_second(instants_ns: np.ndarray) -> int:
    """The most events in any of the seconds that follow one another from the first event on."""
    if not len(instants_ns):
        return 0
    since = (instants_ns - instants_ns.min()).astype("int64") // 1_000_000_000
    return int(np.unique(since, return_counts=True)[1].max())
