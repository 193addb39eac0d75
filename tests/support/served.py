"""A real server under test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from backends.base import Backend
from backends.process import EngineProcess, free_port, wait_ready
from harness.core.model_store import ModelFiles


@dataclass(frozen=True)
class Served:
    """A running server."""

    process: EngineProcess
    backend: Backend
    base_url: str

    async def metrics(self, client: aiohttp.ClientSession) -> dict[str, float]:
        """Its own figures by their common names."""
        async with client.get("/metrics") as response:
            return self.backend.common_metrics(await response.text())


@contextmanager
def serving(backend: Backend, model: ModelFiles, log: Path) -> Iterator[Served]:
    """A checked and prepared backend, started with two threads and answering; ended at the end."""
    port = free_port()
    with EngineProcess.start(backend.launch(model, port, 2), log) as process:
        endpoint = backend.endpoint(model, port)
        wait_ready(endpoint, backend, process, 120)
        yield Served(process, backend, endpoint.base_url)
