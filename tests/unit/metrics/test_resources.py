import pandas as pd
import pytest

from harness.metrics.resources import (
    Held,
    energy_summary,
    engine_cores,
    memory_summary,
    prefix_cache_summary,
)
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


def parts(touched: bool | None, weights: float | None, **columns: list[float | None]) -> dict[str, object]:
    return memory_summary(
        samples(kv_used_bytes=[0, 0, 300.0, 800.0], kv_reserved_bytes=[2000.0] * 4, **columns),
        WINDOW,
        Held(touched, weights, "files" if weights else None),
    )


def test_what_the_peak_consists_of():
    pss = [0, 0, 9000, 10_000]
    taken = parts(True, 5000, pss_bytes=pss)
    assert (taken["kv_in_peak"], taken["overhead_bytes"], taken["kv_share_of_memory"]) == (
        "reserved",
        3000,
        0.2,
    )
    used = parts(False, 5000, pss_bytes=pss)
    assert (used["kv_in_peak"], used["overhead_bytes"], used["kv_share_of_memory"]) == ("used", 4200, 0.08)
    assert (used["weights_bytes"], used["weights_source"]) == (5000, "files")


def test_what_is_not_known_of_the_peak_is_missing():
    unknown = parts(None, 5000, pss_bytes=[0, 0, 9000, 10_000])
    assert (unknown["kv_in_peak"], unknown["overhead_bytes"], unknown["kv_share_of_memory"]) == (None,) * 3
    light = parts(True, None, pss_bytes=[0, 0, 9000, 10_000])
    assert (light["weights_bytes"], light["weights_source"], light["overhead_bytes"]) == (None,) * 3
    assert light["kv_share_of_memory"] == 0.2
    assert parts(True, 5000, pss_bytes=[None] * 4)["overhead_bytes"] is None


def test_the_memory_of_a_gpu_goes_before_that_of_the_processes():
    assert parts(True, 5000, pss_bytes=[1] * 4, gpu_bytes=[0, 0, 0, 8000])["overhead_bytes"] == 1000


def test_an_engine_that_says_its_weights_is_believed():
    found = parts(True, 5000, pss_bytes=[10_000] * 4, weights_bytes=[4000.0] * 4)
    assert (found["weights_bytes"], found["weights_source"], found["overhead_bytes"]) == (
        4000,
        "engine",
        4000,
    )
