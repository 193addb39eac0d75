"""Trace files of every format, generated here, and the plans that are drawn from them."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from harness.core.requests import Plan
from harness.core.tokenizer import Tokenizer
from harness.records.frames import empty
from harness.records.schema import REQUEST_COLUMNS
from tests.support.workload_options import workload_options
from workloads.registry import draw_plan, recorded_requests
from workloads.traces import BLOCK_TOKENS, Row, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.9799600,300,10
2023-11-17 00:00:00.0319601,120,8
2023-11-17 00:00:01.0781490,40,27"""  # no newline at the end, as published
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
45.5,GPT-4,417,276,693,API log
"""
BURSTGPT_SESSIONS = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,7,1.5,ChatGPT,100,18,118,Conversation log
6,,1,ChatGPT,90,5,95,API log
16.5,7,1,ChatGPT,180,9,189,Conversation log
20,7,0.5,ChatGPT,60,9,69,Conversation log
"""


def write(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def mooncake(folder: Path, *rows: dict[str, Any]) -> Path:
    return write(folder, "\n".join(json.dumps(row) for row in rows))


def row(ms: int, prompt: int, output: int, blocks: list[int]) -> dict[str, Any]:
    return {"timestamp": ms, "input_length": prompt, "output_length": output, "hash_ids": blocks}


def recorded(folder: Path) -> Path:
    """requests.parquet of a run: a warm-up, a success, a failure of known length, a failure of free length."""
    table = empty(REQUEST_COLUMNS).reindex(range(4))
    table["phase"] = ["warmup", "measured", "measured", "measured"]
    table["scheduled_ns"] = pd.array([10**9, 2 * 10**9, 3 * 10**9 + 1, 4 * 10**9], dtype="Int64")
    table["end_ns"] = pd.array([15 * 10**8, 25 * 10**8, pd.NA, 5 * 10**9], dtype="Int64")
    table["session"] = [0, 4, 4, 5]
    table["prompt_tokens"] = [9, 100, 200, 300]
    table["output_tokens"] = [5, 7, 0, 0]
    table["output_tokens_planned"] = pd.array([5, pd.NA, 11, pd.NA], dtype="Int64")
    table["ok"] = [True, True, False, False]
    path = folder / "requests.parquet"
    table.to_parquet(path)
    return path


def test_azure(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, AZURE), "auto")
    assert (trace.format, trace.left_out) == ("azure", 0)
    assert [(r.prompt_tokens, r.output_tokens) for r in trace.rows] == [(300, 10), (120, 8), (40, 27)]
    assert [r.arrival_s for r in trace.rows] == pytest.approx([0, 0.0520001, 1.0981890], abs=1e-9)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_burstgpt_leaves_failed_requests_out(tmp_path: Path, ends: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(b"\xef\xbb\xbf" + BURSTGPT.replace("\n", ends).encode())
    trace = read_trace(path, "auto")
    assert trace.format == "burstgpt"
    assert trace.rows == (Row(5.0, 472, 18), Row(45.5, 417, 276))
    assert trace.left_out == 1


def test_burstgpt_with_sessions(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, BURSTGPT_SESSIONS), "auto").rows
    assert [(r.session, r.arrival_s, r.answered_s) for r in rows] == [
        ("7", 5.0, 6.5),
        (None, 6.0, 7.0),
        ("7", 16.5, 17.5),
        ("7", 20.0, 20.5),
    ]
    older = BURSTGPT_SESSIONS.replace("Session ID", "SessionID").replace("Elapsed time", "Other")
    first, *_ = read_trace(write(tmp_path, older), "auto").rows
    assert (first.session, first.answered_s) == ("7", None)
    some = BURSTGPT_SESSIONS.replace("16.5,7,1,", "16.5,7, ,").replace("20,7,0.5", "20,7,soon")
    with pytest.raises(UsageError, match="line 5: Elapsed time is 'soon'"):
        read_trace(write(tmp_path, some), "auto")
    rows = read_trace(write(tmp_path, some.replace("soon", "0.5")), "auto").rows
    assert [r.answered_s for r in rows] == [6.5, 7.0, None, 20.5]


def test_mooncake(tmp_path: Path) -> None:
    path = mooncake(tmp_path, row(3000, 600, 5, [0, 1]), row(1500, 512, 6, [0]), row(0, 10, 0, [4]))
    trace = read_trace(path, "auto")
    assert trace.rows == (Row(1.5, 512, 6, (0,)), Row(3.0, 600, 5, (0, 1)))  # in order of arrival
    assert (trace.format, trace.left_out) == ("mooncake", 1)


def test_the_harness_own_record(tmp_path: Path) -> None:
    trace = read_trace(recorded(tmp_path), "auto")
    assert (trace.format, trace.left_out) == ("harness", 1)
    assert trace.rows == (
        Row(0.0, 100, 7, session="4", answered_s=0.5),
        Row(1.000000001, 200, 11, session="4"),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "known format"),
        ("", "known format"),
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,5\n", "GeneratedTokens"),
        (AZURE + "\nsoon,5,5\n", "line 5: TIMESTAMP is 'soon'"),
        (AZURE + "\n2023-11-17 00:00:02,-5,5\n", "line 5: ContextTokens is '-5'"),
        (AZURE + "\n2023-11-17 00:00:02,5,2.5\n", "line 5: GeneratedTokens is '2.5'"),
        (AZURE + "\n2023-11-17 00:00:02,,5\n", "line 5: ContextTokens is ''"),
        (BURSTGPT + "inf,M,5,5,10,L\n", "line 5: Timestamp is 'inf'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no usable request"),
        (json.dumps(row(0, 513, 5, [0])), "line 1: 1 hash_ids"),
        (json.dumps(row(0, 0, 5, [0])), "line 1: a length of 0"),
        (json.dumps({"timestamp": 0, "input_length": 5}), "line 1: expected"),
        (json.dumps(row(0, 5, 5, [0])) + "\n{", "line 2"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_trace(write(tmp_path, text), "auto")


def test_a_missing_file_and_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"workload\.path="):
        read_trace(tmp_path / "none", "auto")
    with pytest.raises(UsageError, match=r"workload\.format=pcap"):
        read_trace(write(tmp_path, AZURE), "pcap")


def plan(path: Path, tokenizer: Tokenizer, context: int = 4096, **options: Any) -> Plan:
    chosen = workload_options("trace", path=str(path), **options)
    return draw_plan(chosen, tokenizer, seed=5, warmup=2, context_length=context)


def test_lengths_and_instants_are_the_traces(tmp_path: Path, tokenizer: Tokenizer) -> None:
    drawn = plan(write(tmp_path, AZURE + "\n2023-11-17 00:00:02.5,3,1\n"), tokenizer)
    assert [request.prompt_tokens for request in drawn.requests] == [300, 120, 40, 3]
    assert [request.output_tokens for request in drawn.requests] == [10, 8, 27, 1]
    assert [r.arrival_s for r in drawn.requests] == pytest.approx([0, 0.0520001, 1.098189, 2.52004], abs=1e-9)
    assert [request.session for request in drawn.requests] == [0, 1, 2, 3]
    for request in drawn.requests[:3]:
        assert tuple(tokenizer.encode(tokenizer.render_chat(request.messages))) == request.prompt_ids
    assert drawn.requests[3].messages == ()  # shorter than the template
    assert drawn.sources["trace_without_template"] == 1
    assert drawn.sources["trace_format"] == "azure" and drawn.sources["corpus"] == "pydoc"
    assert len(drawn.warmup) == 2
    assert all(request.arrival_s is None for request in drawn.warmup)
    assert {r.prompt_ids for r in drawn.warmup}.isdisjoint(r.prompt_ids for r in drawn.requests)


def test_seeds_draw_other_text_of_the_same_lengths(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path, AZURE)
    again, other = (
        draw_plan(workload_options("trace", path=str(path)), tokenizer, seed, 0, 4096) for seed in (5, 6)
    )
    assert plan(path, tokenizer).sha256() == again.sha256() != other.sha256()
    assert [r.prompt_tokens for r in again.requests] == [r.prompt_tokens for r in other.requests]


def test_a_slice_starts_at_its_own_zero(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path, AZURE)
    drawn = plan(path, tokenizer, first=1, requests=2)
    assert [request.prompt_tokens for request in drawn.requests] == [120, 40]
    assert [r.arrival_s for r in drawn.requests] == pytest.approx([0, 1.0461889], abs=1e-9)
    for wrong in ({"first": 3}, {"first": 1, "requests": 3}, {"requests": 0}, {"first": -1}):
        with pytest.raises(UsageError, match=r"workload\.(first|requests)="):
            plan(path, tokenizer, **wrong)


def test_what_does_not_fit_is_refused_clipped_or_dropped(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path, AZURE)
    with pytest.raises(UsageError, match=r"1 of 3 .*context_length=200.*300 prompt .*too_long=clip or drop"):
        plan(path, tokenizer, context=200)
    dropped = plan(path, tokenizer, context=200, too_long="drop")
    assert [request.prompt_tokens for request in dropped.requests] == [120, 40]
    assert dropped.requests[0].arrival_s == 0
    assert (dropped.sources["trace_dropped"], dropped.sources["trace_clipped"]) == (1, 0)
    clipped = plan(path, tokenizer, context=200, too_long="clip")
    assert [request.prompt_tokens for request in clipped.requests] == [190, 120, 40]
    assert clipped.sources["trace_clipped"] == 1
    with pytest.raises(UsageError, match="None of 3"):
        plan(path, tokenizer, context=11, too_long="drop")
    with pytest.raises(UsageError, match=r"workload\.too_long=cut"):
        plan(path, tokenizer, too_long="cut")


def test_rows_of_a_session_become_its_turns(tmp_path: Path, tokenizer: Tokenizer) -> None:
    drawn = plan(write(tmp_path, BURSTGPT_SESSIONS), tokenizer)
    first, other, second, third = drawn.requests
    assert [(r.session, r.turn) for r in drawn.requests] == [(0, 0), (1, 0), (0, 1), (0, 2)]
    assert [r.prompt_tokens for r in drawn.requests] == [100, 90, 180, 60]
    assert [r.think_time_s for r in drawn.requests] == [0, 0, 10.0, 2.5]
    assert [r.arrival_s for r in drawn.requests] == [0, 1, 11.5, 15]
    assert second.messages[: len(first.messages)] == first.messages
    assert [message["role"] for message in second.messages[-3:]] == ["user", "assistant", "user"]
    # up to the answer, the second prompt is the first one, which ends where an answer begins
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    answered = tokenizer.render_chat(second.messages[:-1], add_generation_prompt=False)
    empty = tokenizer.render_chat([*first.messages, {"role": "assistant", "content": ""}], False)
    assert len(tokenizer.encode(answered)) - len(tokenizer.encode(empty)) == 18
    assert (
        third.messages[0] != first.messages[0] and len(third.messages) == 1
    )  # too short to hold what was before
    assert drawn.sources["trace_sessions"] == 2 and drawn.sources["trace_begun_anew"] == 1
    for request in drawn.requests:
        assert tuple(tokenizer.encode(tokenizer.render_chat(request.messages))) == request.prompt_ids
    assert other.messages[0] != first.messages[0]
    with pytest.raises(UsageError, match=r"workload\.history=real"):
        plan(tmp_path / "trace", tokenizer, history="real")
    alone = plan(tmp_path / "trace", tokenizer, sessions=False)
    assert [(r.session, r.turn, r.think_time_s) for r in alone.requests] == [(i, 0, 0) for i in range(4)]


def test_the_harness_own_sessions_are_turns_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    first, second = plan(recorded(tmp_path), tokenizer).requests
    assert (first.session, second.session, second.turn, second.think_time_s) == (0, 0, 1, 0.5)
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids


def test_a_slice_cuts_sessions_at_its_ends(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path, BURSTGPT_SESSIONS)
    drawn = plan(path, tokenizer, first=1, requests=2)
    assert [(r.session, r.turn) for r in drawn.requests] == [(0, 0), (1, 0)]
    held = [
        recorded_requests(workload_options("trace", path=str(path), **more))
        for more in ({}, {"first": 1, "requests": 2}, {"sessions": False})
    ]
    assert held == [(4, 4), (1, 2), (1, 2, 3, 4)]
    assert recorded_requests(workload_options("chat")) is None


@pytest.mark.parametrize("corpus", [{}, {"corpus__name": "folder"}])
def test_prompts_cut_from_ids_are_what_their_text_encodes_to(
    tmp_path: Path, tokenizer: Tokenizer, corpus: dict[str, str]
) -> None:
    """Every length from the template's up, in plain text and in text of odd spaces and many-byte characters."""
    if corpus:
        odd = (
            "Grüße, 世界 👩‍👩‍👧  \n\n\t  x = 'a  b'\n   \n日本語の文章。 …  <|im_end|> naïve\u00a0café\n\n"
            * 60
        )
        (tmp_path / "odd.txt").write_text(odd)
        corpus = {**corpus, "corpus__path": str(tmp_path)}
    lengths = [*range(31, 70), *range(70, 900, 9)]
    lines = [f"{second},M,{length},3,0,L" for second, length in enumerate(lengths)]
    path = write(tmp_path, "\n".join([BURSTGPT.splitlines()[0], *lines]))
    drawn = plan(path, tokenizer, **corpus)
    for number, request in enumerate(drawn.requests):
        assert request.prompt_tokens == lengths[number]
        assert tuple(tokenizer.encode(tokenizer.render_chat(request.messages))) == request.prompt_ids
        assert lengths[number] < 60 or request.messages[-1]["content"].startswith(f"{number + 1}. ")


@settings(max_examples=12)
@given(data=st.data())
def test_equal_blocks_are_equal_ids_and_others_are_not(
    data: st.DataObject, tokenizer: Tokenizer, tmp_path_factory
) -> None:
    count = data.draw(st.integers(2, 5))
    rows = []
    for at in range(count):
        blocks = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
        short = data.draw(st.integers(0, BLOCK_TOKENS - 1))
        rows.append(row(at, len(blocks) * BLOCK_TOKENS - short, 2, blocks))
    drawn = plan(mooncake(tmp_path_factory.mktemp("mooncake"), *rows), tokenizer)
    shared_texts: dict[int, tuple[int, ...]] = {}
    for planned, source in zip(drawn.requests, rows, strict=True):
        assert planned.prompt_tokens == source["input_length"]
        for at, block in enumerate(source["hash_ids"]):
            ids = planned.prompt_ids[at * BLOCK_TOKENS : (at + 1) * BLOCK_TOKENS]
            known = shared_texts.get(block, ())
            shorter = min(len(known), len(ids))
            assert known[:shorter] == ids[:shorter]
            shared_texts[block] = max(known, ids, key=len)
    beginnings = [ids[:8] for ids in shared_texts.values() if len(ids) >= 8]
    assert len(set(beginnings)) == len(beginnings)


def test_a_trace_can_be_saved_and_replayed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    source = mooncake(tmp_path, row(0, 600, 5, [0, 1]), row(250, 700, 5, [0, 2]))
    drawn = plan(source, tokenizer, save=str(tmp_path / "plan.jsonl"))
    again = draw_plan(
        workload_options("file", path=str(tmp_path / "plan.jsonl")),
        tokenizer,
        0,
        warmup=1,
        context_length=4096,
    )
    assert again.sha256() == drawn.sha256()
    assert [request.arrival_s for request in again.requests] == [0, 0.25]
