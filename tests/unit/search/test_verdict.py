"""Verdicts over recorded probes, and how the answer is told."""

from pathlib import Path
from typing import Any

import pytest

from harness.records.reader import Run
from harness.search.verdict import judge
from tests.support.slo_limits import slo


def run_of(status: str = "complete", validity: list[dict[str, Any]] | None = None, **summary: Any) -> Run:
    return Run(Path("x"), "r1", status, "", reason="it broke", summary=summary, validity=validity or [])


def limit(value: float | None, met: bool, enough: bool = True) -> dict[str, Any]:
    return {
        "key": "ttft_p99_ms",
        "limit_ms": 500.0,
        "value_ms": value,
        "samples": 40,
        "enough": enough,
        "met": met,
    }


def test_a_percentile_is_told_with_its_limit_and_its_samples() -> None:
    verdict = judge(run_of(slo_percentiles=[limit(812.3, False, enough=False)]), slo(ttft_p99_ms=500.0), 0.99)
    assert (verdict.met, verdict.enough) == (False, False)
    assert verdict.text == "TTFT p99 812 ms (limit 500, 40 samples)"
    verdict = judge(run_of(slo_percentiles=[limit(None, False)]), slo(ttft_p99_ms=500.0), 0.99)
    assert verdict.text == "TTFT p99 none (limit 500)"


@pytest.mark.parametrize(("share", "met"), [(0.99, True), (0.98, False), (None, False)])
def test_limits_of_single_requests_need_a_share(share: float | None, met: bool) -> None:
    assert judge(run_of(slo_attainment=share, slo_percentiles=[]), slo(ttft_ms=1.0), 0.99).met is met


def test_every_limit_must_be_met() -> None:
    both = run_of(slo_percentiles=[limit(400, True), limit(600, False)], slo_attainment=1.0)
    assert judge(both, slo(ttft_ms=1.0, ttft_p99_ms=500.0), 0.99).met is False


def test_a_probe_that_failed_ended_early_or_kept_no_rate_has_not_met() -> None:
    good = {"slo_percentiles": [limit(400, True)]}
    limits = slo(ttft_p99_ms=500.0)
    assert judge(run_of(**good), limits, 0.99).met is True
    assert judge(run_of("failed"), limits, 0.99).text == "it broke"
    assert judge(run_of("failed"), limits, 0.99).met is False
    assert judge(run_of("partial", **good), limits, 0.99).met is False
    late = [{"check": "achieved_rate", "ok": False, "value": 0.61}]
    verdict = judge(run_of(validity=late, **good), limits, 0.99)
    assert verdict.met is False and "61% of the rate was sent" in verdict.text


def test_a_client_at_its_own_limit_is_told() -> None:
    checks = [
        {"check": "client_cpu", "ok": False, "value": 0.9, "problem": "client short of CPU"},
        {"check": "client_capacity", "ok": None, "value": None, "problem": "not this"},
        {"check": "steady_state", "ok": False, "value": 2.0, "problem": "nor this"},
    ]
    slow = run_of(validity=checks, slo_percentiles=[limit(812, False)])
    verdict = judge(slow, slo(ttft_p99_ms=500.0), 0.99)
    assert verdict.met is False and verdict.text == "TTFT p99 812 ms (limit 500); client short of CPU"


def test_without_limits_nothing_is_judged() -> None:
    assert judge(run_of(slo_percentiles=[]), slo(), 0.99).met is None
