"""A plain client for tests: one request, and every event of its answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson


@dataclass
class Answer:
    """What came of one streamed request."""

    events: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for event in self.events for choice in event["choices"]]

    @property
    def text(self) -> str:
        return "".join(
            choice["text"] if "text" in choice else choice["delta"]["content"] for choice in self.choices
        )

    @property
    def ids(self) -> list[int]:
        return [token for choice in self.choices for token in choice["token_ids"]]

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = self.events[-1]["usage"]
        return usage


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each event. This server writes one `data:` line an event."""
    async for line in response.content:
        if line.strip():
            assert line.startswith(b"data: "), line
            yield line[6:].rstrip(b"\n")


async def stream(client: aiohttp.ClientSession, path: str, **body: Any) -> Answer:
    """Stream a request with usage and ids to its end."""
    body = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True, **body}
    answer = Answer()
    async with client.post(path, json=body) as response:
        assert response.status == 200, await response.text()
        async for data in events(response):
            if data == b"[DONE]":
                answer.done = True
            else:
                answer.events.append(orjson.loads(data))
    return answer


async def whole(client: aiohttp.ClientSession, path: str, **body: Any) -> dict[str, Any]:
    """A request that is not streamed; the body of its answer."""
    async with client.post(path, json=body) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = orjson.loads(await response.read())
        return answer
