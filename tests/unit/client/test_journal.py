"""The journal: what goes in comes out, whole entries survive a cut, a full disk is told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.journal import Journal, read_journal
from harness.client.journal_reader import read_by_request

ENTRIES = st.lists(
    st.tuples(
        st.integers(1, 7), st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=99)
    ),
    max_size=30,
)


@given(entries=ENTRIES, cut=st.integers(0, 4000))
def test_a_cut_loses_only_what_lies_behind_it(
    entries: list[tuple[int, int, int, bytes]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    journal = Journal(path)
    for entry in entries:
        journal.add(*entry)
    journal.close()
    assert list(read_journal(path)) == entries and journal.failure is None
    path.write_bytes(path.read_bytes()[:cut])
    kept = list(read_journal(path))
    assert kept == entries[: len(kept)]
    grouped: dict[int, list[tuple[int, int, bytes]]] = {}
    for kind, request, ns, payload in kept:
        grouped.setdefault(request, []).append((kind, ns, payload))
    columns = [
        (request, list(zip(found.kinds.tolist(), found.ns.tolist(), found.payloads, strict=True)))
        for request, found in read_by_request(path)
    ]
    assert columns == sorted(grouped.items())
    sizes = [17 + len(payload) for *_, payload in entries]
    assert len(kept) == sum(1 for number in range(len(sizes)) if sum(sizes[: number + 1]) <= cut)


def test_what_is_larger_than_a_buffer(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    payloads = [bytes([number]) * 300_000 for number in range(5)]
    for number, payload in enumerate(payloads):
        journal.add(4, number, number, payload)
    journal.close()
    assert [payload for *_, payload in read_journal(tmp_path / "j")] == payloads


def test_a_full_disk_is_told() -> None:
    journal = Journal(Path("/dev/full"))
    journal.add(4, 0, 0, b"x" * 300_000)
    journal.close()
    assert journal.failure is not None and "space" in journal.failure


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert list(read_journal(tmp_path / "none")) == []
    assert list(read_by_request(tmp_path / "none")) == []
