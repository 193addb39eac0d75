import time

import pandas as pd
import pytest

from harness.records.schema import TELEMETRY_COLUMNS
from harness.telemetry.sampler import Sampler


class Counting:
    weight = 1.0

    def __init__(self) -> None:
        self.looks = 0

    def read(self) -> dict[str, float]:
        self.looks += 1
        return {"kv_used_bytes": 100.0 * self.looks, "pss_bytes": 7}


class Broken:
    weight = 1.0

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def read(self) -> dict[str, float]:
        raise self.error("gone")


class Dear:
    weight = 1.0

    looks = 0

    def read(self) -> dict[str, float]:
        Dear.looks += 1
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        return {"energy_j": 1.0}


def test_rows_are_in_order_and_typed():
    source = Counting()
    with Sampler([source], interval_s=0.01) as sampler:
        while source.looks < 3:
            time.sleep(0.005)
        assert sampler.latest("kv_used_bytes") is not None
    frame = sampler.frame()
    assert list(frame.columns) == [*TELEMETRY_COLUMNS, "kv_used_bytes"]
    assert frame["ns"].is_monotonic_increasing
    assert list(frame["kv_used_bytes"]) == [100.0 * (i + 1) for i in range(len(frame))]
    assert frame["pss_bytes"].dtype == "Int64"
    assert frame["gpu_bytes"].isna().all()


class Foreign(Exception):
    """As NVML's: of a family that no standard library knows."""


@pytest.mark.parametrize("error", [OSError, Foreign])
def test_a_source_that_cannot_be_read_leaves_the_others_alone(error: type[Exception]):
    source = Counting()
    with Sampler([Broken(error), source], interval_s=0.01) as sampler:
        while source.looks < 2:
            time.sleep(0.005)
    assert len(sampler.frame()) >= 2


def test_a_dear_source_is_asked_less_often():
    cheap = Counting()
    with Sampler([cheap, Dear()], interval_s=0.01) as sampler:
        while cheap.looks < 10:
            time.sleep(0.005)
    # 50 ms a look at half a percent of a core: not again for ten seconds.
    assert Dear.looks == 1
    assert sampler.frame()["energy_j"].count() == 1


def test_nothing_read_is_an_empty_frame_with_all_columns():
    with Sampler([Broken(OSError)], interval_s=0.01) as sampler:
        pass
    frame = sampler.frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == list(TELEMETRY_COLUMNS)
    assert frame.empty
