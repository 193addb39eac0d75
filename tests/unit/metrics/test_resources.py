import pandas as pd
import pytest

from harness.metrics.resources import energy_summary, engine_cores, memory_summary, prefix_cache_summary
from harness.metrics.window import NS_PER_S, Window
from harness.records.frames import typed
from harness.records.schema import TELEMETRY_COLUMNS

WINDOW = Window(10 * NS_PER_S, 13 * NS_PER_S, "time")


def samples(**columns: list[float | None]) -> pd.DataFrame:
    """One sample a second from 8 s on; the window holds those at 10 to 13 s."""
    length = len(next(iter(columns.values())))
    return typed(
        pd.DataFrame({"ns": [(8 + i) * NS_PER_S for i in range(length)]} | columns), TELEMETRY_COLUMNS
    )


def test_memory_counts_only_samples_inside_the_window():
    found = memory_summary(samples(pss_bytes=[9000, 8000, 5000, 7000, 6000, None, 9999]), WINDOW)
    assert found["peak_process_bytes"] == 7000
    assert found["samples"] == 3


def test_kv_per_request_is_the_mean_ratio_over_samples_in_which_any_request_ran():
    found = memory_summary(
        samples(
            kv_used_bytes=[0, 0, 300.0, 800.0, 50.0, None],
            requests_running=[0, 0, 3.0, 4.0, 0.0, 2.0],
            kv_reserved_bytes=[1000.0] * 6,
        ),
        WINDOW,
    )
    assert found["kv_per_request_bytes"] == pytest.approx((100 + 200) / 2)
    assert found["kv_used_max_bytes"] == 800
    assert found["kv_used_mean_bytes"] == pytest.approx((300 + 800 + 50) / 3)
    assert found["kv_reserved_bytes"] == 1000


def test_what_the_engine_does_not_report_is_missing_and_not_zero():
    found = memory_summary(samples(pss_bytes=[1, 1, 1, 1]), WINDOW)
    assert found["kv_used_max_bytes"] is None
    assert found["kv_per_request_bytes"] is None
    assert found["peak_gpu_bytes"] is None


def test_counters_are_differences_over_the_window():
    found = prefix_cache_summary(
        samples(
            prefix_query_tokens_total=[0, 90.0, 100.0, 200.0, 300.0, 500.0, 900.0],
            prefix_hit_tokens_total=[0, 0.0, 0.0, 50.0, 50.0, 100.0, 900.0],
        ),
        WINDOW,
    )
    assert found == {"query_tokens": 400.0, "hit_tokens": 100.0, "hit_rate": 0.25}


def test_no_counter_no_rate():
    found = prefix_cache_summary(samples(pss_bytes=[1, 1, 1]), WINDOW)
    assert found == {"query_tokens": None, "hit_tokens": None, "hit_rate": None}


def test_engine_cores_is_the_slope_of_its_cpu_time():
    assert engine_cores(samples(engine_cpu_s=[0, 5.0, 6.0, 7.5, 9.0, 10.5, 99.0]), WINDOW) == pytest.approx(
        1.5
    )


def test_energy_is_absent_where_it_cannot_be_read():
    assert energy_summary(samples(pss_bytes=[1, 1, 1]), WINDOW, 100) == {}
    found = energy_summary(samples(energy_j=[0.0, 1.0, 2.0, 4.0, 6.0, 12.0]), WINDOW, 100)
    assert found == {"joules": 10.0, "joules_per_output_token": 0.1}
