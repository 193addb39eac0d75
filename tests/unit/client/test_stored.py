"""A phase that is read from disk says what the one that was run would have said, but for what may be a secret."""

from pathlib import Path

import pandas as pd

from harness.client.journal import Journal, Kind
from harness.client.stored import Phase, stored_measurement
from tests.support.client_jobs import plan, tiny_tokenizer

KEY = "sk-0123456789"
STREAM = b'data: {"choices":[{"text":" word","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def write(path: Path) -> None:
    """One answered request, and one whose key the server repeats."""
    journal = Journal(path)
    for request, head, body in (
        (0, "200\ntext/event-stream\n", STREAM),
        (1, "401\ntext/plain\n", KEY.encode()),
    ):
        journal.add(Kind.SCHEDULED, request, 1000)
        journal.add(Kind.SENT, request, 1001)
        journal.add(Kind.HEADERS, request, 1002, head.encode())
        journal.add(Kind.BODY, request, 1003, body)
        journal.add(Kind.END, request, 1004)
    journal.close()


def test_the_same_tables_and_no_key_on_disk(tmp_path: Path):
    write(tmp_path / "journal")
    phase = Phase("measured", tiny_tokenizer(), plan(2), [KEY])
    phase.save(tmp_path / "asked")
    assert KEY.encode() not in (tmp_path / "asked").read_bytes()
    ran = stored_measurement(phase, [tmp_path / "journal"], [{}])
    read = stored_measurement(Phase.load(tmp_path / "asked"), [tmp_path / "journal"], [{}])
    assert list(ran.requests["ok"]) == [True, False] and ran.requests["error_detail"][1] == "(key)"
    assert read.requests["error_detail"].isna().all()  # nobody knows any more which word is the key
    hidden = ["error_detail", "unexpected_sample"]
    pd.testing.assert_frame_equal(read.requests.drop(columns=hidden), ran.requests.drop(columns=hidden))
    pd.testing.assert_frame_equal(read.events, ran.events)
    assert (read.window_start_ns, read.window_end_ns) == (1000, 1004)


def test_without_a_key_the_server_is_quoted(tmp_path: Path):
    write(tmp_path / "journal")
    Phase("measured", tiny_tokenizer(), plan(2), []).save(tmp_path / "asked")
    read = stored_measurement(Phase.load(tmp_path / "asked"), [tmp_path / "journal"], [{}])
    assert read.requests["error_detail"][1] == KEY
