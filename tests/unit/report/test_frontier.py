"""The frontier against its definition, and what is drawn of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.reader import Run, read_run
from harness.report.frontier import frontier, frontier_figures
from harness.report.positions import perplexity_by_position
from tests.support.synthetic_runs import Schedule, write_run

_POINTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


@given(_POINTS, st.booleans())
def test_frontier_is_what_no_other_point_beats(points: list[tuple[int, int]], higher_is_better: bool) -> None:
    memory = [float(bytes_) for bytes_, _ in points]
    values = [float(value) for _, value in points]

    def beats(one: int, other: int) -> bool:
        better = values[one] >= values[other] if higher_is_better else values[one] <= values[other]
        same = (memory[one], values[one]) == (memory[other], values[other])
        return memory[one] <= memory[other] and better and (not same or one < other)

    everybody = range(len(points))
    expected = [
        place for place in everybody if not any(beats(other, place) for other in everybody if other != place)
    ]
    found = frontier(memory, values, higher_is_better)
    assert sorted(found) == expected
    assert [memory[place] for place in found] == sorted(memory[place] for place in found)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(write_run(tmp_path_factory.mktemp("runs"), "one", Schedule()))


def _setting(run: Run, name: str, kv: float, perplexity: float) -> Run:
    summary = {**run.summary, "memory": {"kv_per_request_bytes": kv}, "quality": {"perplexity": perplexity}}
    return replace(run, id=name, summary=summary)


def test_settings_are_drawn_by_workload_with_their_frontier(run: Run) -> None:
    runs = [
        _setting(run, "full", 94e6, 20.0),
        _setting(run, "int8", 24e6, 20.1),
        _setting(run, "int4", 13e6, 20.7),
        _setting(run, "worse", 30e6, 21.0),
    ]
    (quality,), (speed,) = frontier_figures(runs, {one.id: one.id for one in runs})
    on = quality.data[quality.data["on_frontier"]]
    assert sorted(on["setting"]) == ["full", "int4", "int8"]
    assert list(quality.data["kv_mb"]) == [94, 24, 13, 30]
    assert speed.title.startswith("Speed against memory")
    assert "int4" in quality.svg and "worse" not in quality.svg


def test_perplexity_by_position_is_a_line_for_each_series(run: Run) -> None:
    parts = [
        {"from": 0, "to": 64, "tokens": 63, "perplexity": 30.0},
        {"from": 64, "to": 128, "tokens": 64, "perplexity": 20.0},
    ]
    told = replace(run, summary={**run.summary, "quality": {"perplexity_by_position": parts}})
    figure = perplexity_by_position([(0, told), (0, told), (1, run), (2, told)])
    assert figure is not None and figure.series == [0, 2]
    assert list(figure.data["perplexity"]) == [30.0, 20.0] * 2
    assert perplexity_by_position([(0, run)]) is None


def test_two_settings_and_unfinished_runs_draw_nothing(run: Run) -> None:
    runs = [_setting(run, name, 1e6, 20.0) for name in ("a", "b")]
    partial = replace(_setting(run, "c", 2e6, 19.0), status="partial")
    assert frontier_figures([*runs, partial], {"a": "a", "b": "b", "c": "c"}) == ([], [])
