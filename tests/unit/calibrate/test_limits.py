"""The search for the highest load, on readings whose limits are known beforehand."""

from dataclasses import replace

import numpy as np
import pytest

from harness.calibrate.errors import Errors, Spread
from harness.calibrate.limits import highest, holds, rate_load, streams_load
from harness.calibrate.loads import Reading, usual_rate

NONE = Spread(0.0, 0.0, 0.0)


def reading(rate: float, ttft_ms: float = 0.1, server_cpu: float = 0.1, lost: int = 0) -> Reading:
    errors = Errors(ttft=Spread(ttft_ms, ttft_ms, ttft_ms), gap=NONE, tpot=NONE, e2e=NONE, lost=lost)
    return Reading(
        title="",
        errors=errors,
        tokens=1,
        tokens_per_s=rate,
        streams=round(rate),
        events_per_read=1.0,
        client_us=1.0,
        client_cpu=0.1,
        parse_us=1.0,
        server_cpu=server_cpu,
        server_late_ms=0.0,
        server_held=0,
        lag_p99_ms=None,
        realtime=True,
    )


def client_up_to(most: float):
    return lambda rate: reading(rate, ttft_ms=0.1 if rate <= most else 5.0)


@pytest.mark.parametrize(
    "most, halvings, tried, found",
    [
        (500, 0, [100, 200, 400, 800, 800], 400),
        (500, 2, [100, 200, 400, 800, 800, 600, 600, 500], 500),
        (99, 2, [100, 100, 50, 75], 75),
        (0, 1, [100, 100, 50, 50], 0),
    ],
)
def test_the_client_is_the_limit(most: float, halvings: int, tried: list[float], found: float):
    limit = highest(client_up_to(most), 100, 10_000, halvings, "tokens_per_s")
    assert [one.tokens_per_s for one in limit.readings] == tried
    assert limit.value == found and limit.limited_by == "client"


def test_a_disturbance_is_no_limit():
    disturbed = iter([reading(100), reading(200, ttft_ms=9.0), reading(200), reading(400)])
    limit = highest(lambda rate: next(disturbed), 100, 400, 3, "tokens_per_s")
    assert limit.value == 400 and limit.limited_by == "search" and len(limit.readings) == 4


def test_the_server_is_not_the_clients_limit():
    def probe(rate: float) -> Reading:
        return reading(min(rate, 300), server_cpu=0.99 if rate > 300 else 0.5)

    limit = highest(probe, 100, 10_000, 1, "tokens_per_s")
    assert limit.limited_by == "server" and limit.value == 300


def test_a_search_that_ends_before_either():
    limit = highest(client_up_to(10_000), 100, 400, 3, "tokens_per_s")
    assert (limit.value, limit.limited_by, len(limit.readings)) == (400, "search", 3)


def test_what_holds():
    assert holds(reading(1, ttft_ms=1.0)) and holds(reading(1, ttft_ms=-1.0))
    assert not holds(reading(1, ttft_ms=1.01)) and not holds(reading(1, ttft_ms=-1.01))
    assert not holds(reading(1, lost=1)) and not holds(reading(1, ttft_ms=float("nan")))
    assert replace(reading(1), server_late_ms=3.0).server_saturated


def test_loads_offer_what_they_say():
    load = rate_load(32_000, 4.0)
    assert load.itl_us == 2000 and load.tokens == 125 and load.requests == 1024
    assert load.load_options().concurrency == 64
    load = streams_load(2000, 10.0)
    assert (
        load.requests == 2000 and load.tokens * load.itl_us >= 10e6
    )  # the first is there when the last begins


def test_usual_rate():
    steady = np.arange(0, 10_000_000_000, 1_000_000)  # 1,000 a second for ten seconds
    assert usual_rate(steady) == pytest.approx(1000)
    assert usual_rate(np.array([], dtype="int64")) == 0.0
