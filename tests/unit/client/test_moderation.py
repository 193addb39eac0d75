"""How long the client pauses, tried on streams whose every arrival is known; no clock is involved."""

import heapq
from dataclasses import dataclass

import pytest

from harness.client.moderation import LONGEST_NS, Moderation

_MS = 1_000_000


@dataclass
class Tried:
    """pauses: at each wake-up. coalesced: reads that brought more than one event, after the first quarter."""

    pauses: list[int]
    reads: int
    coalesced: int

    @property
    def usual(self) -> int:
        """The pause in the middle of the last half."""
        late = sorted(self.pauses[len(self.pauses) // 2 :])
        return late[len(late) // 2]


def steady(streams: int, gap_ns: int, until_ns: int) -> list[tuple[int, int]]:
    """(instant, stream) of streams with one gap, spread over it."""
    return sorted(
        (start, stream)
        for stream in range(streams)
        for start in range(stream * gap_ns // streams, until_ns, gap_ns)
    )


def run(
    arrivals: list[tuple[int, int]], answer_ns: int | None = None, second_part_ns: int | None = None
) -> Tried:
    """Let a client live through these arrivals, reading all there is whenever its moderation lets it.

    second_part_ns: each event has a second part, which arrives so long after the client has read the first.
    """
    moderation = Moderation()
    latest: dict[int, int] = {}
    tried = Tried([], 0, 0)
    coming = [(ns, stream, second_part_ns is not None) for ns, stream in arrivals]  # sorted, so a heap
    now = 0
    while coming:
        now = now + moderation.pause_ns if moderation.pause_ns else max(now, coming[0][0])
        came: dict[int, list[int]] = {}
        while coming and coming[0][0] <= now:
            ns, stream, more = heapq.heappop(coming)
            came.setdefault(stream, []).append(ns)
            if more and second_part_ns is not None:
                heapq.heappush(coming, (now + second_part_ns, stream, False))
        short = 0
        for stream, instants in came.items():
            short += instants[-1] - latest.get(stream, -(10**12)) < moderation.gap_ns
            latest[stream] = instants[-1]
            if now > arrivals[-1][0] // 4:
                tried.reads += 1
                tried.coalesced += len(instants) > 1
        if answer_ns is not None:
            moderation.answered(answer_ns)
        tried.pauses.append(moderation.woke(now, len(came), short, False))
    return tried


def test_few_events_are_never_kept_waiting() -> None:
    assert set(run(steady(16, 20 * _MS, 2000 * _MS)).pauses) == {0}


@pytest.mark.parametrize(
    ("streams", "gap_ns"), [(16, 3_200_000), (64, 2_000_000), (64, 20_000_000), (500, 100_000_000)]
)
def test_many_events_are_read_together_but_never_two_of_a_stream(streams: int, gap_ns: int) -> None:
    tried = run(steady(streams, gap_ns, 2000 * _MS))
    assert 0 < tried.usual <= min(LONGEST_NS, gap_ns)
    assert tried.coalesced == 0


@pytest.mark.parametrize("gap_ns", [50_000, 150_000])
def test_streams_faster_than_any_pause_worth_taking(gap_ns: int) -> None:
    tried = run(steady(64, gap_ns, 1000 * _MS))
    assert tried.usual == 0 and tried.coalesced == 0


def test_a_fast_stream_among_slow_ones_sets_the_pause() -> None:
    slow, fast = steady(60, 20 * _MS, 2000 * _MS), steady(2, 1 * _MS, 2000 * _MS)
    tried = run(list(heapq.merge(slow, [(ns, 100 + stream) for ns, stream in fast])))
    assert tried.usual <= 1 * _MS
    assert tried.coalesced * 50 < tried.reads


def test_the_last_events_of_an_answer_may_come_together() -> None:
    arrivals = steady(64, 3 * _MS, 2000 * _MS)
    pairs = [(ns + 30_000, stream) for ns, stream in arrivals[::100]]
    assert run(sorted(arrivals + pairs)).usual > 0


def test_a_second_part_that_waits_for_us_stops_the_pauses() -> None:
    """A server that sends on only when the first part is acknowledged must not wait for the client."""
    assert run(steady(16, 3 * _MS, 2000 * _MS), second_part_ns=60_000).usual == 0


def test_a_pause_is_at_most_a_hundredth_of_an_answer() -> None:
    arrivals = steady(64, 3 * _MS, 2000 * _MS)
    assert set(run(arrivals, 10 * _MS).pauses) == {0}
    tried = run(arrivals, 60 * _MS)
    assert 0 < max(tried.pauses) <= 600_000


def test_one_short_answer_does_not_count_for_ever() -> None:
    moderation = Moderation()
    moderation.answered(1)
    pauses = [moderation.woke(wake * _MS, 10, 0, False) for wake in range(3000)]
    assert pauses[100] == 0 and pauses[-1] > 0


def test_a_machine_that_wakes_the_client_late_gets_shorter_pauses() -> None:
    moderation = Moderation()
    on_time = [moderation.woke(wake * 2 * _MS, 20, 0, False) for wake in range(1000)]
    late = [moderation.woke(wake * 2 * _MS, 20, 0, wake % 5 == 0) for wake in range(1000, 2000)]
    assert on_time[-1] == max(on_time) > 0 and late[-1] == 0
