"""Settings shared by every test: hypothesis without deadlines, and the same examples on every CI run."""

import os

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("engines", "which engines tests/engines/test_conformance.py runs")
    group.addoption("--engines", help="NAME,NAME; by default all that start within seconds")
    group.addoption("--engine-python", action="append", default=[], help="NAME=PATH of an environment of yours")


@pytest.fixture(scope="session", autouse=True)
def _offline() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
