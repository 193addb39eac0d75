"""Limits of percentiles against numpy, failures included."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness.metrics.slo import PERCENTILE_LIMITS, SloOptions, judge_percentiles
from tests.support.slo_limits import slo
from tests.support.synthetic_runs import Schedule, tables

CONF = Path(__file__).parents[3] / "conf" / "slo"


def requests_with(ttfts_ms: list[int], failed: int = 0) -> pd.DataFrame:
    """Measured requests of these TTFTs, then `failed` ones."""
    count = len(ttfts_ms) + failed
    frame, _, _ = tables(Schedule(requests=count, slots=count, warmup=0))
    frame.loc[: len(ttfts_ms) - 1, "first_ns"] = frame["scheduled_ns"][: len(ttfts_ms)] + [
        ms * 1_000_000 for ms in ttfts_ms
    ]
    frame["ok"] = [True] * len(ttfts_ms) + [False] * failed
    return frame


@given(
    ttfts=st.lists(st.integers(1, 10_000), min_size=1, max_size=40),
    failed=st.integers(0, 5),
    name=st.sampled_from(["p50", "p90", "p95", "p99"]),
)
def test_the_percentile_is_numpys_with_failures_beyond_all_others(
    ttfts: list[int], failed: int, name: str
) -> None:
    (judged,) = judge_percentiles(requests_with(ttfts, failed), slo(**{f"ttft_{name}_ms": 5_000.0}))
    q = float(name[1:])
    above = float(np.percentile(ttfts + [10**12] * failed, q))  # a failure pulls it beyond any real value
    if judged["value_ms"] is None:
        assert above > 10_000
        assert not judged["met"]
    else:
        assert judged["value_ms"] == pytest.approx(above, abs=1e-3)
        assert judged["met"] == (judged["value_ms"] <= 5_000)
    assert judged["samples"] == len(ttfts) + failed


@pytest.mark.parametrize(
    ("name", "count", "enough"),
    [("p50", 10, True), ("p50", 9, False), ("p90", 30, True), ("p90", 29, False), ("p95", 60, True),
     ("p95", 59, False), ("p99", 300, True), ("p99", 299, False)],
)  # fmt: skip
def test_it_says_whether_there_are_samples_enough(name: str, count: int, enough: bool) -> None:
    (judged,) = judge_percentiles(requests_with([7] * count), slo(**{f"ttft_{name}_ms": 7.0}))
    assert judged["met"] and judged["value_ms"] == 7
    assert judged["enough"] == enough


def test_only_limits_that_are_set_are_judged() -> None:
    frame = requests_with([7, 8])
    assert judge_percentiles(frame, None) == judge_percentiles(frame, slo(ttft_ms=1.0)) == []
    keys = [judged["key"] for judged in judge_percentiles(frame, slo(e2e_p50_ms=1.0, ttft_p99_ms=1.0))]
    assert keys == ["ttft_p99_ms", "e2e_p50_ms"]


def test_an_answer_of_one_token_has_no_tpot_and_misses_none() -> None:
    frame = requests_with([7])
    frame["output_tokens"] = 1
    (judged,) = judge_percentiles(frame, slo(tpot_p50_ms=1.0))
    assert (judged["samples"], judged["value_ms"], judged["enough"]) == (0, None, False)
    assert judged["met"]


@pytest.mark.parametrize("name", ["none", "interactive"])
def test_each_choice_sets_every_limit(name: str) -> None:
    values = OmegaConf.load(CONF / f"{name}.yaml")
    del values["defaults"]
    options = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(SloOptions), values))
    assert isinstance(options, SloOptions)
    assert all(getattr(options, key) is None for key in PERCENTILE_LIMITS)
