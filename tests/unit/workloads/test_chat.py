import json
from itertools import pairwise
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.core.requests import AnswerOf, Plan, PlannedRequest
from harness.core.tokenizer import Tokenizer
from tests.support.workload_options import workload_options
from workloads.chat import segments_of
from workloads.registry import check_context, draw_plan


def drawn(tokenizer: Tokenizer, **overrides: object) -> Plan:
    return draw_plan(workload_options("chat", **overrides), tokenizer, seed=3, warmup=1, context_length=4096)


def tokens_of(tokenizer: Tokenizer, messages: list, ready: bool = True) -> int:
    return len(tokenizer.encode(tokenizer.render_chat(messages, add_generation_prompt=ready)))


def test_turns_carry_the_whole_history_and_lengths_add_up(tokenizer: Tokenizer) -> None:
    plan = drawn(
        tokenizer, requests=8, turns=3, prompt_tokens="200..220", user_tokens="20..30", output_tokens="9..15"
    )
    sessions = list(plan.sessions())
    assert [len(turns) for turns in sessions] == [3, 3, 2]
    for turns in sessions:
        assert 200 <= turns[0].prompt_tokens <= 220
        assert turns[0].think_time_s == 0
        for before, after in pairwise(turns):
            messages = list(after.messages)
            assert messages[: len(before.messages)] == list(before.messages)
            answer, question = messages[-2:]
            assert (answer["role"], question["role"]) == ("assistant", "user")
            # The scripted answer is as long as what was asked for, counted against an empty answer.
            without = [*before.messages, {**answer, "content": ""}]
            gained = tokens_of(tokenizer, messages[:-1], False) - tokens_of(tokenizer, without, False)
            assert gained == before.output_tokens
            user_tokens = after.prompt_tokens - tokens_of(
                tokenizer, [*messages[:-1], {**question, "content": ""}]
            )
            assert 20 <= user_tokens <= 30
            assert 0.2 <= after.think_time_s <= 1.0
            assert after.tags["shared_prefix_tokens"] >= before.prompt_tokens


def test_sessions_share_the_system_prompt_and_nothing_of_their_own(tokenizer: Tokenizer) -> None:
    plan = drawn(tokenizer, requests=10, turns=1, system_tokens=100)
    systems = {request.messages[0]["content"] for request in (*plan.requests, *plan.warmup)}
    assert len(systems) == 1
    assert abs(len(tokenizer.encode(systems.pop())) - 100) <= 2
    assert len({request.messages[-1]["content"] for request in plan.requests}) == 10
    assert all(112 > request.tags["shared_prefix_tokens"] >= 100 for request in plan.requests[1:])


def test_many_sessions_of_a_small_corpus_still_begin_differently(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(
        "One line of text.\n\nAnother line of it.\n\nThe last line there is, some words long."
    )
    corpus = {"corpus__name": "folder", "corpus__path": str(tmp_path)}
    plan = drawn(tokenizer, requests=20, turns=1, prompt_tokens=120, **corpus)
    assert len({request.prompt_ids for request in plan.requests}) == 20
    assert all(request.tags["shared_prefix_tokens"] < 60 for request in plan.requests)


def test_no_system_prompt_leaves_it_to_the_template(tokenizer: Tokenizer) -> None:
    assert [m["role"] for m in drawn(tokenizer, requests=1, system_prompt=None).requests[0].messages] == [
        "user"
    ]


def filled(request: PlannedRequest, answers: list[list[int]]) -> list[int]:
    ids: list[int] = []
    for part in request.segments:
        ids += answers[part.turn] if isinstance(part, AnswerOf) else part
    return ids


def test_real_history_builds_the_prompt_the_template_would(tokenizer: Tokenizer) -> None:
    plan = drawn(tokenizer, requests=6, turns=3, history="real")
    scripted = drawn(tokenizer, requests=6, turns=3)
    assert [r.prompt_ids for r in plan.requests] == [r.prompt_ids for r in scripted.requests]
    for turns in plan.sessions():
        assert turns[0].segments == ()
        texts = ["It is 42.", "Ünïcode 🧑‍🚀\n\n  1234"]
        answers = [tokenizer.encode(text) for text in texts]
        for request in turns[1:]:
            messages = list(request.messages)
            for turn, place in enumerate(i for i, m in enumerate(messages) if m["role"] == "assistant"):
                messages[place] = {"role": "assistant", "content": texts[turn]}
            true_prompt = tokenizer.encode(tokenizer.render_chat(messages))
            assert filled(request, answers) == true_prompt
            # The stated tolerance: off from the script by what the answers are longer or shorter.
            off = sum(len(answers[t]) - (turns[t].output_tokens or 0) for t in range(request.turn))
            assert len(true_prompt) == request.prompt_tokens + off


def test_a_template_that_rewrites_answers_is_refused_for_real_history(tokenizer: Tokenizer) -> None:
    class Rewriting:
        def render_chat(self, messages: list) -> str:
            return "".join(message["content"].replace("answer", "reply") for message in messages)

        def encode(self, text: str) -> list[int]:
            return tokenizer.encode(text)

    with pytest.raises(UsageError, match=r"workload\.history=scripted"):
        segments_of(Rewriting(), [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])  # type: ignore[arg-type]


def test_real_history_must_fit_at_its_longest(tokenizer: Tokenizer) -> None:
    options = workload_options(
        "chat", requests=2, turns=2, history="real", output_tokens="free:300", answer_tokens=10
    )
    plan = draw_plan(options, tokenizer, 3, 0, 4096)
    last = plan.requests[-1]
    longest = last.prompt_tokens - 10 + 300 + 300
    check_context(plan, longest)
    with pytest.raises(UsageError, match=f"backend.context_length={longest - 1}"):
        check_context(plan, longest - 1)


@pytest.fixture
def conversations(tmp_path: Path) -> Path:
    path = tmp_path / "chat.jsonl"
    with path.open("w") as file:
        for i in range(20):
            spoken = [
                {"role": role, "content": f"{role} {i} turn {turn} " + f"says {i * 7} words " * 12}
                for turn in range(2)
                for role in ("user", "assistant")
            ]
            file.write(json.dumps({"messages": spoken}) + "\n")
    return path


def test_recorded_conversations_give_their_turns_and_answers(
    tokenizer: Tokenizer, conversations: Path
) -> None:
    corpus = {"corpus__name": "messages", "corpus__path": str(conversations)}
    trimmed = drawn(
        tokenizer, requests=4, turns=2, prompt_tokens=90, user_tokens=10, output_tokens=8, **corpus
    )
    assert trimmed.requests[0].prompt_tokens == 90
    for first, second in trimmed.sessions():
        opening = first.messages[-1]["content"]
        assert opening.startswith("user ")
        number = opening.split()[1]
        assert second.messages[-2]["content"].startswith(f"assistant {number} turn 0")
        assert second.messages[-1]["content"].startswith(f"user {number} turn 1")
    warm = trimmed.warmup[0].messages[-1]["content"].split()[1]
    assert warm in {"18", "19"}  # the last tenth is kept for warm-up
    # 18 conversations are measured with, in an order of the seed's, before any comes twice.
    many = drawn(tokenizer, requests=18, turns=1, prompt_tokens=90, **corpus)
    assert {r.messages[-1]["content"].split()[1] for r in many.requests} == {str(i) for i in range(18)}


def test_recorded_lengths_are_kept_where_none_are_asked_for(
    tokenizer: Tokenizer, conversations: Path
) -> None:
    plan = drawn(
        tokenizer,
        requests=4,
        turns=5,
        prompt_tokens=None,
        user_tokens=None,
        corpus__name="messages",
        corpus__path=str(conversations),
    )
    recorded = [json.loads(line)["messages"] for line in conversations.read_text().splitlines()]
    texts = {
        message["content"].strip()
        for messages in recorded
        for message in messages
        if message["role"] == "user"
    }
    assert [request.turn for request in plan.requests] == [
        0,
        1,
        0,
        1,
    ]  # a conversation of two turns stays one
    assert all(request.messages[-1]["content"] in texts for request in plan.requests)


def test_text_with_markers_cannot_end_a_turn(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some words <|im_end|> and <|im_start|>system more words\n\n" * 300)
    plan = drawn(tokenizer, requests=4, turns=1, corpus__name="folder", corpus__path=str(tmp_path))
    for request in plan.requests:
        assert sum(i in tokenizer.encode("<|im_end|>") for i in request.prompt_ids) == 2  # system and user
