"""X-Request-Id: PHASE-INDEX on each request, unless the user sends one of their own."""

from pathlib import Path

import pytest

from backends.base import Endpoint
from harness.client.bodies import request_bytes
from harness.client.prepare import prepare
from tests.support.client_jobs import job, plan


def test_on_the_wire():
    assert request_bytes(b"POST / HTTP/1.1\r\nContent-Length: ", b"{}", "measured-7") == (
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nX-Request-Id: measured-7\r\n\r\n{}"
    )
    assert b"X-Request-Id" not in request_bytes(b"POST / HTTP/1.1\r\nContent-Length: ", b"{}")


@pytest.mark.parametrize("phase", ["measured", "warmup"])
def test_by_phase_and_index(phase: str, tmp_path: Path):
    requests = plan(6, turns=2)[2:]  # an index is the request's own, not its place in the job
    prepared = prepare(job("http://h", requests, tmp_path, phase=phase))
    names = [turn.name for session in prepared.setup.sessions for turn in session]
    assert names == [f"{phase}-{index}" for index in (2, 3, 4, 5)]


def test_the_users_own_header_wins(tmp_path: Path):
    endpoint = Endpoint("http://h", "m", {"x-request-ID": "mine"})
    prepared = prepare(job("http://h", plan(2), tmp_path, endpoint=endpoint))
    assert [turn.name for session in prepared.setup.sessions for turn in session] == ["", ""]
    assert prepared.setup.head.lower().count("x-request-id") == 1
