"""A real server under test."""

from dataclasses import dataclass

import aiohttp

from backends.base import Backend
from backends.process import EngineProcess


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
