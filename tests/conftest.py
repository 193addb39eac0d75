"""Settings shared by every test: hypothesis without a look at the clock, and the same examples on every CI run."""

import os
import signal
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", **_UNTIMED)
# The same examples every time: twice as many would say the same again tomorrow.
settings.register_profile("ci", **_UNTIMED, derandomize=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A script's background jobs ignore SIGINT, and what they start inherits that: no Ctrl-C would reach it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("engines", "which engines tests/engines/test_conformance.py runs")
    group.addoption("--engines", help="NAME,NAME; by default all that start within seconds")
    group.addoption(
        "--engine-python", action="append", default=[], help="NAME=PATH of an environment of yours"
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How long each suite took, set-up included."""
    times: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                suite = "/".join(report.nodeid.split("::")[0].split("/")[:2])
                times[suite] += report.duration
                counts[suite] += report.when == "call"
    for suite, seconds in times.items():
        terminalreporter.write_line(f"{suite}: {counts[suite]} tests, {seconds:.0f} s")


@pytest.fixture(scope="session", autouse=True)
def _offline() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
