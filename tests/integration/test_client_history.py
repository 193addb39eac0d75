"""Real history: a later turn holds what the engine answered before."""

from pathlib import Path

import psutil
import pytest

from harness.client import Progress, measure
from harness.core.requests import AnswerOf, PlannedRequest
from tests.support.client_jobs import WORDS, job, load, quiet
from tests.support.fixtures import ScriptedServer
from tests.support.processes import command_of
from tests.support.scripts import Script


def chat(session: int, turns: int = 3, think_s: float = 0.05) -> list[PlannedRequest]:
    """Turn t asks 100·session + t after the answers to all turns before it."""
    requests = []
    for turn in range(turns):
        segments: list[tuple[int, ...] | AnswerOf] = []
        messages: list[dict[str, str]] = []
        for earlier in range(turn):
            segments += [(100 * session + earlier, 50), AnswerOf(earlier)]
            messages += [
                {"role": "user", "content": f"q{earlier}"},
                {"role": "assistant", "content": "scripted"},
            ]
        key = 100 * session + turn
        ids = (*(part for part in segments if isinstance(part, tuple)), (key, 51))
        messages.append({"role": "user", "content": str(key)})
        requests.append(
            PlannedRequest(
                index=session * turns + turn,
                prompt_ids=sum(ids, ()),
                messages=tuple(messages),
                output_tokens=3,
                max_output_tokens=3,
                session=session,
                turn=turn,
                think_time_s=think_s if turn else 0.0,
                segments=(*segments, (key, 51)) if turn else (),
            )
        )
    return requests


@pytest.mark.parametrize(("token_ids", "workers"), [(False, 1), (True, 1), (True, 2)])
def test_prompts_hold_the_true_answers(
    server: ScriptedServer, tmp_path: Path, token_ids: bool, workers: int
) -> None:
    server.play(Script(token_ids=token_ids, texts=[" word", " other"]))
    measured = measure(job(server.base_url, chat(0) + chat(1), tmp_path, workers=workers), quiet)
    assert measured.requests["ok"].all()
    answer = [0, 1, 2] if token_ids else [WORDS.index(word) for word in (" word", " other", " word")]
    for session in (0, 1):
        first = 100 * session
        bodies = [entry["body"]["prompt"] for entry in server.record() if entry["body"]["prompt"][0] == first]
        assert bodies == [
            [first, 51],
            [first, 50, *answer, first + 1, 51],
            [first, 50, *answer, first + 1, 50, *answer, first + 2, 51],
        ]
    assert list(measured.requests["prompt_tokens"]) == [2, 7, 12] * 2
    assert list(measured.requests["prompt_tokens_usage"]) == [2, 7, 12] * 2


def test_without_think_time_the_turn_waits_for_its_body(server: ScriptedServer, tmp_path: Path) -> None:
    measured = measure(job(server.base_url, chat(0, think_s=0.0), tmp_path), quiet)
    rows = measured.requests
    assert rows["ok"].all()
    assert list(rows["scheduled_ns"])[1:] == list(rows["end_ns"])[:-1]


def test_messages_hold_the_true_answers(server: ScriptedServer, tmp_path: Path) -> None:
    measured = measure(job(server.base_url, chat(0), tmp_path, api="chat"), quiet)
    assert measured.requests["ok"].all()
    assert server.record()[-1]["body"]["messages"] == [
        {"role": "user", "content": "q0"},
        {"role": "assistant", "content": " word word word"},
        {"role": "user", "content": "q1"},
        {"role": "assistant", "content": " word word word"},
        {"role": "user", "content": "2"},
    ]


def test_a_closing_end_of_text_is_not_repeated(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Script(texts=[" word", " other", "</s>"]))
    measure(job(server.base_url, chat(0, turns=2), tmp_path), quiet)
    assert server.record()[-1]["body"]["prompt"] == [0, 50, 1, 2, 1, 51]


def test_a_turn_without_an_answer_to_build_on_is_an_error(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(
        by_key={0: Script(error_after=0), 100: Script(status=500, body="no"), 200: Script(cut_after=2)}
    )
    requests = chat(0) + chat(1) + chat(2) + chat(3)
    measured = measure(job(server.base_url, requests, tmp_path, load(concurrency=1)), quiet)
    rows = measured.requests
    assert list(rows["error"].fillna("")) == [
        *("stream_error", "no_history", "no_history"),
        *("http_500", "no_history", "no_history"),
        *("truncated", "no_history", "no_history"),
        *("", "", ""),
    ]
    assert len(server.record()) == 3 + 3


def test_a_helper_that_dies_costs_the_turns_that_needed_it(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(by_key={0: Script(ttft_ms=600)})

    def kill(progress: Progress) -> None:
        for child in psutil.Process().children(recursive=True):
            if progress.in_flight and "harness.client.history" in command_of(child):
                child.kill()

    rows = measure(job(server.base_url, chat(0), tmp_path), kill).requests
    assert list(rows["error"].fillna("")) == ["", "no_history", "no_history"]
