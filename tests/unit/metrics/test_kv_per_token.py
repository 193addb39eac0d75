import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.kv_per_token import fitted, held_tokens, kv_per_token
from harness.metrics.window import Window
from harness.records.frames import typed
from harness.records.schema import EVENT_COLUMNS, REQUEST_COLUMNS, TELEMETRY_COLUMNS

MS = 1_000_000
START = 10_000 * MS
PER_TOKEN = 23_040
WINDOW = Window(START, START + 600_000 * MS, "count")
Frames = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def pairs(
    lengths: list[int], tokens: int = 40, block: int = 32, prefill_ms: int = 900, told: bool = False
) -> Frames:
    """Two requests at once for each of `lengths`, the second half a second later: one event every 50 ms, KV of each
    rounded up to blocks; while a prompt is read it holds half of its length. A sample every 100 ms.

    told: whether the engine says how large its blocks are.
    """
    requests, events = [], []
    spans = []
    for number, length in enumerate(lengths):
        for late in (0, 1):
            sent = START + number * 10_000 * MS + late * 500 * MS
            first = sent + prefill_ms * MS
            arrivals = [first + i * 50 * MS for i in range(tokens)]
            index = 2 * number + late
            requests.append(
                {
                    "phase": "measured",
                    "index": index,
                    "ok": True,
                    **dict.fromkeys(("session", "turn", "output_tokens", "events", "reads", "unexpected"), 0),
                    "prompt_tokens": length + 7 * late,
                    "sent_ns": sent,
                    "first_ns": first,
                    "last_ns": arrivals[-1],
                    "end_ns": arrivals[-1],
                }
            )
            events += [
                {"phase": "measured", "index": index, "ns": ns, "tokens": 1, "estimated": False}
                for ns in arrivals
            ]
            spans.append((sent, first, arrivals, length + 7 * late))
    samples = []
    for ns in range(START, START + len(lengths) * 10_000 * MS, 100 * MS):
        blocks = 0
        for sent, first, arrivals, length in spans:
            if sent <= ns < first:
                blocks += -(-(length // 2) // block)
            elif first <= ns <= arrivals[-1]:
                blocks += -(-(length + sum(arrival <= ns for arrival in arrivals)) // block)
        gauges = {"ns": ns, "kv_used_bytes": float(blocks * block * PER_TOKEN)}
        samples.append(gauges | ({"kv_block_tokens": float(block)} if told else {}))
    return (
        typed(requests, REQUEST_COLUMNS),
        typed(events, EVENT_COLUMNS),
        typed(pd.DataFrame(samples), TELEMETRY_COLUMNS),
    )


@pytest.mark.parametrize("block", [1, 32])
def test_bytes_per_token_are_found_whatever_the_blocks(block: int) -> None:
    found = kv_per_token(*pairs([256, 384, 500, 700, 1100, 1500], block=block), WINDOW)
    assert found.bytes is not None
    assert found.bytes.value == pytest.approx(PER_TOKEN, rel=0.01)
    assert found.bytes.low - 1 <= PER_TOKEN <= found.bytes.high + 1
    assert found.why is None


@pytest.mark.parametrize("block", [1, 16, 128])
def test_blocks_whose_size_is_told_cancel_however_the_lengths_fall_into_them(block: int) -> None:
    lengths = [
        260,
        262,
        264,
        440,
        445,
    ]  # of blocks of 128 the short ones fill little of their last, the long ones most
    told = kv_per_token(*pairs(lengths, block=block, told=True), WINDOW).bytes
    assert told is not None
    assert told.value == pytest.approx(PER_TOKEN, rel=1e-9)
    assert told.half_width < 1e-6 * PER_TOKEN
    if block == 128:  # what an engine that keeps silent about them lets one see
        guessed = kv_per_token(*pairs(lengths, block=block), WINDOW).bytes
        assert guessed is None or abs(guessed.value / PER_TOKEN - 1) > 0.03


def test_only_samples_count_in_which_nobody_reads_a_prompt_begins_or_ends() -> None:
    requests, events, telemetry = pairs([256])
    held = held_tokens(requests, events, telemetry, WINDOW)
    # Both generate from 1400 ms (the second one's first token) to 2850 ms (the first one's last); after that the
    # second alone until 3350 ms; two gaps of 50 ms are left out on each side of every change.
    at = ((held["ns"] - START) / MS).tolist()
    assert at == [*range(1600, 2701, 100), *range(3000, 3201, 100)]
    assert held["requests"].tolist() == [2] * 12 + [1] * 3
    exact = [519 + (1 + (ms - 900) // 50) + (1 + (ms - 1400) // 50) for ms in range(1600, 2701, 100)]
    assert held["tokens"].tolist()[:12] == exact


stream = st.tuples(st.integers(0, 40), st.lists(st.integers(0, 3), min_size=1, max_size=30), st.booleans())


@given(st.lists(stream, min_size=1, max_size=6), st.integers(1, 9))
def test_tokens_held_are_what_a_plain_loop_over_requests_and_events_adds_up(
    streams: list[tuple[int, list[int], bool]], block: int
) -> None:
    """Streams as (start, gaps, whether its end came), in steps of 10 ms; events are read in any order."""
    requests, events = [], []
    for index, (start, gaps, ended) in enumerate(streams):
        sent = START + start * 10 * MS
        arrivals = (sent + np.cumsum(gaps) * 10 * MS).tolist()
        zeros = dict.fromkeys(("session", "turn", "output_tokens", "events", "reads", "unexpected"), 0)
        instants = {"sent_ns": sent, "first_ns": arrivals[0], "last_ns": arrivals[-1]}
        end = {"end_ns": arrivals[-1] if ended else None}
        row = {"phase": "measured", "index": index, "ok": ended, "prompt_tokens": 100 + index}
        requests.append(row | zeros | instants | end)
        event = {"phase": "measured", "index": index, "tokens": 1 + index, "estimated": False}
        events += [event | {"ns": ns} for ns in reversed(arrivals)]
    samples = [
        {"ns": START + 5 * MS * step, "kv_used_bytes": 1.0 * step, "kv_block_tokens": float(block)}
        for step in range(300)
    ]
    held = held_tokens(
        typed(requests, REQUEST_COLUMNS),
        typed(events, EVENT_COLUMNS),
        typed(pd.DataFrame(samples), TELEMETRY_COLUMNS),
        WINDOW,
    )
    for row in held.itertuples():
        there = [
            one for one in requests if one["sent_ns"] <= row.ns and not (one["end_ns"] or row.ns) < row.ns
        ]
        arrived = [event for event in events if event["ns"] <= row.ns]
        each = [
            one["prompt_tokens"] + sum(event["tokens"] for event in arrived if event["index"] == one["index"])
            for one in there
        ]
        assert (row.requests, row.tokens) == (len(there), sum(each))
        assert row.room == sum(-(-tokens // block) * block for tokens in each)


def test_a_run_that_does_not_tell_says_why() -> None:
    requests, events, telemetry = pairs([256, 256])
    assert "differ too little" in str(kv_per_token(requests, events, telemetry, WINDOW).why)
    assert "only" in str(kv_per_token(requests, events, telemetry.iloc[:18], WINDOW).why)
    in_one_block = kv_per_token(*pairs([130, 150], block=128, told=True), WINDOW)
    assert "of blocks" in str(in_one_block.why)
    silent = telemetry.drop(columns="kv_used_bytes")
    found = kv_per_token(requests, events, silent, WINDOW)
    assert found.bytes is None
    assert "no sample" in str(found.why)


def test_requests_that_share_entries_do_not_add_up() -> None:
    requests, events, telemetry = pairs([256, 512, 1024])
    hits = telemetry.assign(prefix_hit_tokens_total=256.0)
    assert kv_per_token(requests, events, hits, WINDOW).bytes is not None  # all of them before the run
    assert (
        kv_per_token(requests, events, hits, WINDOW, prefix_cache=True).bytes is not None
    )  # it counts, and none came
    hits.loc[len(hits) // 2 :, "prefix_hit_tokens_total"] += 128
    nobody_counts = kv_per_token(requests, events, telemetry, WINDOW, prefix_cache=True)
    counted = kv_per_token(requests, events, hits, WINDOW)
    requests.loc[3, "cached_tokens"] = 128
    told = kv_per_token(requests, events, telemetry, WINDOW)
    for found, why in ((counted, "shared"), (told, "shared"), (nobody_counts, "counts no hits")):
        assert found.bytes is None
        assert why in str(found.why)


def test_runs_that_tell_no_block_are_left_out_where_others_do() -> None:
    lengths = [260, 262, 264, 440, 445]
    silent, told = (held_tokens(*pairs(lengths, block=128, told=told), WINDOW) for told in (False, True))
    assert fitted(pd.concat([silent, told])) == fitted(told)
    assert fitted(silent).bytes != fitted(told).bytes


def test_noise_of_the_gauge_is_in_the_interval() -> None:
    requests, events, telemetry = pairs([256, 384, 500, 700, 1100, 1500])
    random = np.random.default_rng(0)
    held = 0
    for _ in range(40):
        noisy = telemetry.copy()
        noisy["kv_used_bytes"] += random.normal(0, 30 * PER_TOKEN, len(noisy))
        found = kv_per_token(requests, events, noisy, WINDOW).bytes
        assert found is not None
        held += found.contains(PER_TOKEN)
    assert held >= 33  # 40 at 95 %: fewer happens once in a thousand times
