"""What the filter of a page offers."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from harness.records.reader import Run, find_runs
from harness.report.facets import facets
from tests.support.synthetic_runs import write_failed_run, write_run

NAMES = st.sampled_from(["vllm", "openvino", "<b>", "", None])


def run(number: int, engine: str | None, workload: str | None, status: str) -> Run:
    config: dict[str, Any] = {
        "backend": {"name": engine},
        "workload": {"name": workload},
        "model": {"name": "m"},
    }
    return cast(Run, SimpleNamespace(id=f"r{number}", config=config, status=status))


@given(st.lists(st.tuples(NAMES, NAMES, st.sampled_from(["complete", "partial", "failed"]))))
def test_each_facet_parts_the_runs_and_counts_them(found: list[tuple[str | None, str | None, str]]):
    runs = [run(number, *one) for number, one in enumerate(found)]
    offered = {facet.heading: facet for facet in facets(runs)}
    for place, heading in enumerate(("Engine", "Workload", "Outcome")):
        values = [one[place] or "not known" for one in found]
        assert (heading in offered) == (len(set(values)) > 1)
        if heading in offered:
            facet = offered[heading]
            assert dict(facet.values) == Counter(values)
            assert [facet.values[facet.of_run[f"r{n}"]][0] for n in range(len(runs))] == values
    assert "Model" not in offered  # one for all


def test_one_engine_and_one_workload_leave_nothing_to_filter_by(tmp_path: Path):
    write_run(tmp_path, "r1")
    write_run(tmp_path, "r2")
    assert facets(find_runs(["r*"], tmp_path)) == []


def test_a_run_that_failed_is_told_by_its_outcome(tmp_path: Path):
    write_run(tmp_path, "r1")
    write_failed_run(tmp_path, "r2", "It ran out of memory.")
    facet = facets(find_runs(["r*"], tmp_path))[-1]
    assert (facet.heading, facet.values) == ("Outcome", [("complete", 1), ("failed", 1)])
