"""What one request took: every latency of docs/metrics.md, from the instants its row holds.

Differences are taken between integer nanoseconds and only then become floats, so that no precision is lost.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

NS_PER_MS = 1e6
LATENCIES = ("ttft_ms", "ttft_from_send_ms", "tpot_ms", "e2e_ms", "e2e_from_send_ms", "schedule_lag_ms")


def latencies(requests: pd.DataFrame) -> pd.DataFrame:
    """Latencies in milliseconds, one row for each row of `requests` and with its index.

    Columns are those of LATENCIES; NaN where a latency is undefined: an instant that never came, TPOT of
    fewer than two tokens, and everything but the schedule lag of a request that failed.
    """
    frame = pd.DataFrame(index=requests.index)
    frame["ttft_ms"] = milliseconds(requests, "scheduled_ns", "first_ns")
    frame["ttft_from_send_ms"] = milliseconds(requests, "sent_ns", "first_ns")
    gaps = requests["output_tokens"].to_numpy(dtype=float, na_value=np.nan) - 1
    gaps[gaps < 1] = np.nan  # undefined, and left out rather than 0
    frame["tpot_ms"] = milliseconds(requests, "first_ns", "last_ns") / gaps
    frame["e2e_ms"] = milliseconds(requests, "scheduled_ns", "last_ns")
    frame["e2e_from_send_ms"] = milliseconds(requests, "sent_ns", "last_ns")
    frame.loc[~succeeded(requests)] = np.nan
    frame["schedule_lag_ms"] = milliseconds(requests, "scheduled_ns", "sent_ns")
    return frame


def milliseconds(requests: pd.DataFrame, start: str, end: str) -> npt.NDArray[np.float64]:
    """`end − start` of two columns of nanoseconds, in ms; NaN where either is missing."""
    difference = requests[end].astype("Int64") - requests[start].astype("Int64")
    return difference.to_numpy(dtype=float, na_value=np.nan) / NS_PER_MS


def event_gaps(requests: npt.NDArray[np.integer], ns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Gaps in ms between consecutive events of the same request (ITL as the field measures it).

    requests: which one each event belongs to, e.g. its `request_keys`. ns: when it came. Ordered by request, then by
    time. A request of one event has no gap. Events read from the socket at once have a gap of 0.
    """
    order = np.lexsort((ns, requests))
    same = np.diff(requests[order]) == 0
    return np.diff(ns[order])[same] / NS_PER_MS


def request_keys(rows: pd.DataFrame) -> npt.NDArray[np.int64]:
    """One number for `phase` and `index` of each row: comparing the phases' names would take most of the time."""
    return (is_measured(rows).astype(np.int64) << 40) + rows["index"].to_numpy(dtype=np.int64)


def measured(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of the measured phase; warm-up enters no figure."""
    return requests[is_measured(requests)]


def is_measured(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows are of the measured phase, as a mask."""
    return (rows["phase"] == "measured").to_numpy(dtype=bool, na_value=False)


def succeeded(requests: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows are successful requests, as a mask."""
    return requests["ok"].to_numpy(dtype=bool, na_value=False)
