"""The errors' arithmetic against logs made by hand, and the log's format against bytes made by hand."""

import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.calibrate.errors import errors_of
from harness.calibrate.log import TrueLog, TrueRequest, read_log
from harness.core.errors import HarnessError

MS = 1_000_000


def true(name: str, received_ms: float, *sends_ms: float, asked: int | None = None) -> TrueRequest:
    sends = np.array([round(each * MS) for each in sends_ms], dtype="int64")
    return TrueRequest(name, round(received_ms * MS), 0, asked or len(sends), sends)


def client(*requests: tuple[int, float, list[float]], ok: bool = True) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables of (index, sent in ms, arrivals in ms)."""
    rows = [
        {"phase": "measured", "index": index, "ok": ok, "sent_ns": round(sent * MS)}
        for index, sent, _ in requests
    ]
    events = [
        {"phase": "measured", "index": index, "ns": round(each * MS)}
        for index, _, arrivals in requests
        for each in arrivals
    ]
    shown = pd.DataFrame(events, columns=["phase", "index", "ns"])
    return pd.DataFrame(rows), shown.sort_values("ns", kind="stable")


def test_errors_of_two_requests():
    # Request 7: 0.5 ms to the server, tokens at 20, 30, 40 which took 0.5, 1.5 and 0.5 ms back.
    # Request 8: no way there, one token, 0.2 ms back.
    log = TrueLog(10 * MS, 0, [true("measured-8", 100, 120), true("measured-7", 0.5, 20, 30, 40)])
    tables = client((7, 0, [20.5, 31.5, 40.5]), (8, 100, [120.2]))
    found = errors_of(*tables, log)
    assert found.lost == 0
    assert found.ttft.mean == pytest.approx((1.0 + 0.2) / 2)
    assert found.ttft.max == pytest.approx(1.0)
    assert found.e2e.mean == pytest.approx((1.0 + 0.2) / 2)
    assert found.gap.mean == pytest.approx(1.0) and found.gap.max == pytest.approx(1.0)
    assert found.tpot.mean == pytest.approx(0.0)


def test_a_mean_keeps_its_sign_and_the_others_their_size():
    log = TrueLog(MS, 0, [true(f"measured-{index}", 0, 10, 20) for index in range(2)])
    found = errors_of(*client((0, 0, [9, 20]), (1, 0, [10, 21])), log)
    assert found.ttft.mean == pytest.approx(-0.5) and found.ttft.max == pytest.approx(1.0)
    assert found.tpot.mean == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["measured-1", "warmup-0", ""])
def test_a_request_that_the_server_does_not_know_is_lost(name: str):
    found = errors_of(*client((0, 0, [10])), TrueLog(MS, 0, [true(name, 0, 10)]))
    assert found.lost == 1 and np.isnan(found.ttft.mean) and np.isnan(found.gap.p99)


def test_a_missing_token_a_surplus_one_and_an_error_are_lost():
    log = TrueLog(MS, 0, [true("measured-0", 0, 10, 20)])
    assert errors_of(*client((0, 0, [10])), log).lost == 1
    assert errors_of(*client((0, 0, [10, 20, 30])), log).lost == 1
    assert errors_of(*client((0, 0, [])), log).lost == 1
    assert errors_of(*client((0, 0, [10, 20]), ok=False), log).lost == 1
    cut = TrueLog(MS, 0, [true("measured-0", 0, 10, asked=2)])  # both agree, but it was never whole
    assert errors_of(*client((0, 0, [10])), cut).lost == 1


def test_lateness_is_counted_from_the_schedule():
    one = TrueRequest("a", 0, 20 * MS, 3, np.array([20 * MS, 31 * MS, 40 * MS]))
    assert list(TrueLog(10 * MS, 0, [one]).lateness_ns()) == [0, MS, 0]
    assert len(TrueLog(MS, 0, []).lateness_ns()) == 0


def packed(*requests: tuple[bytes, int, int, int, list[int]], itl: int = 5, held: int = 3) -> bytes:
    data = struct.pack("<8sqq", b"TRUTH 1\0", itl, held)
    for name, received, due, asked, sends in requests:
        data += struct.pack(f"<64sqqII{len(sends)}q", name, received, due, asked, len(sends), *sends)
    return data


def test_a_log_is_read_back(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(packed((b"measured-0", 1, 2, 3, [4, 5]), (b"", 6, 7, 8, [])))
    log = read_log(path)
    assert (log.itl_ns, log.held) == (5, 3)
    assert [(one.id, one.received_ns, one.due_ns, one.asked) for one in log.requests] == [
        ("measured-0", 1, 2, 3),
        ("", 6, 7, 8),
    ]
    assert [list(one.sends) for one in log.requests] == [[4, 5], []]


@pytest.mark.parametrize("data", [None, b"", b"another file altogether, long enough", packed()[:20]])
def test_what_is_no_log_is_refused(data: bytes | None, tmp_path: Path):
    path = tmp_path / "log"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(HarnessError):
        read_log(path)


@pytest.mark.parametrize("cut", [1, 9, 30, 80])
def test_a_log_cut_short_is_refused(cut: int, tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(packed((b"measured-0", 1, 2, 1, [4]))[:-cut])
    with pytest.raises(HarnessError, match="cut short"):
        read_log(path)
