"""Settings shared by every test: hypothesis without deadlines, and the same examples on every CI run."""

import os

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session", autouse=True)
def _offline() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
