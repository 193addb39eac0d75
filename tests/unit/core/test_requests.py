from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.core.requests import AnswerOf, Plan, PlannedRequest

ids = st.lists(st.integers(0, 49151), max_size=20).map(tuple)
requests = st.builds(
    PlannedRequest,
    index=st.integers(0, 1000),
    prompt_ids=ids,
    messages=st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": st.text()}), max_size=3).map(
        tuple
    ),
    output_tokens=st.none() | st.integers(1, 100),
    max_output_tokens=st.integers(1, 100),
    session=st.integers(0, 10),
    turn=st.integers(0, 5),
    think_time_s=st.floats(0, 10),
    segments=st.lists(ids | st.builds(AnswerOf, st.integers(0, 4)), max_size=4).map(tuple),
    expected=st.lists(st.text(), max_size=2).map(tuple),
    tags=st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1) | st.text() | st.booleans(), max_size=3),
)


@given(requests)
def test_a_request_survives_its_json_line(request: PlannedRequest):
    line = request.to_json()
    assert b"\n" not in line
    assert PlannedRequest.from_json(line) == request


@given(st.lists(requests, min_size=1, max_size=5), st.integers(0, 4))
def test_the_plan_hash_tells_any_difference(drawn: list[PlannedRequest], position: int):
    plan = Plan("chat", 0, tuple(drawn), ())
    same = Plan("chat", 0, tuple(PlannedRequest.from_json(r.to_json()) for r in drawn), ())
    assert plan.sha256() == same.sha256()
    position %= len(drawn)
    changed = list(drawn)
    changed[position] = replace(drawn[position], prompt_ids=(*drawn[position].prompt_ids, 7))
    assert Plan("chat", 0, tuple(changed), ()).sha256() != plan.sha256()


def test_sessions_come_in_order_of_turns():
    def request(index: int, session: int, turn: int) -> PlannedRequest:
        return PlannedRequest(index, (1,), (), 1, 1, session, turn)

    plan = Plan("chat", 0, (request(0, 5, 1), request(1, 2, 0), request(2, 5, 0)), (request(0, 9, 0),))
    assert [[r.index for r in session] for session in plan.sessions()] == [[2, 0], [1]]
