"""How far the client's figures are from the server's own instants, request by request.

An error is what the client says less what the server knows, of the same request, so the way of the bytes through
both kernels is in it. Nothing of the client's parsing or timing is used here, only its tables.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.calibrate.log import TrueLog

_MS = 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a set of errors in ms: their mean with its sign, and p99 and maximum of their size."""

    mean: float
    p99: float
    max: float

    @classmethod
    def of(cls, errors_ns: np.ndarray) -> "Spread":
        """Of errors in ns; not a number where there are none."""
        if not len(errors_ns):
            return cls(float("nan"), float("nan"), float("nan"))
        size = np.abs(errors_ns) / _MS
        return cls(float(errors_ns.mean() / _MS), float(np.percentile(size, 99)), float(size.max()))


@dataclass(frozen=True, slots=True)
class Errors:
    """The client's error in each metric, in ms, and the requests whose tokens it does not have whole.

    ttft and e2e count from the moment of sending. gap: between two events, taken without their sign also in the
    mean, since the sum of all of them is nearly zero. tpot: of requests with two tokens or more.
    """

    ttft: Spread
    gap: Spread
    tpot: Spread
    e2e: Spread
    lost: int


def errors_of(requests: pd.DataFrame, events: pd.DataFrame, log: TrueLog, phase: str = "measured") -> Errors:
    """Match requests by their id, PHASE-INDEX, and compare.

    requests, events: tables of `harness.records.schema`, one event a token. A request that the server never saw,
    or one with another number of tokens than it sent, is lost and is in no other figure.
    """
    rows = requests[requests["phase"] == phase].set_index("index")
    arrived = _by_request(events[events["phase"] == phase])
    true = {one.id: one for one in log.requests}
    ttft, e2e, tpot, gaps = [], [], [], []
    lost = 0
    ours = zip(rows.index, rows["ok"], rows["sent_ns"], strict=True)
    for index, ok, sent_ns in ours:
        one = true.get(f"{phase}-{index}")
        seen = arrived.get(index)
        if one is None or seen is None or not ok or not len(seen) == len(one.sends) == one.asked:
            lost += 1
            continue
        ttft.append((seen[0] - sent_ns) - (one.sends[0] - one.received_ns))
        e2e.append((seen[-1] - sent_ns) - (one.sends[-1] - one.received_ns))
        if len(seen) > 1:
            wrong_by = (seen[-1] - seen[0]) - (one.sends[-1] - one.sends[0])
            tpot.append(wrong_by / (len(seen) - 1))
            gaps.append(np.abs(np.diff(seen) - np.diff(one.sends)))
    return Errors(
        ttft=Spread.of(np.array(ttft, dtype=float)),
        gap=Spread.of(np.concatenate(gaps).astype(float) if gaps else np.empty(0)),
        tpot=Spread.of(np.array(tpot, dtype=float)),
        e2e=Spread.of(np.array(e2e, dtype=float)),
        lost=lost,
    )


def _by_request(events: pd.DataFrame) -> dict[int, np.ndarray]:
    """Arrivals in ns of each request's events, in order."""
    index = events["index"].to_numpy()
    order = np.argsort(index, kind="stable")
    ns = events["ns"].to_numpy()[order]
    numbers, starts = np.unique(index[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(ns, starts[1:]), strict=True)) if len(index) else {}
