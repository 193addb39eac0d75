"""The least that a Python client can do on uvloop: keep an instant and the bytes of each read, nothing else.

    python benchmarks/bare_client.py PORT STREAMS TOKENS CORE

prints its CPU time per token in µs. Not a client, since it understands nothing of what it reads; it is the least for
a program that is woken for every token, and benchmarks/client.py shows it beside the client's own cost on the same
machine at the same moment.
"""

import asyncio
import os
import sys
import time

import uvloop

from harness.client.priority import go_first

_END = b"0\r\n\r\n"


class Keeper(asyncio.Protocol):
    """Sends one request and keeps what comes."""

    def __init__(self, request: bytes, done: asyncio.Queue[int]) -> None:
        self._request = request
        self._done = done
        self._kept: list[tuple[int, bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """asyncio: one read."""
        self._kept.append((time.monotonic_ns(), data))
        if data.endswith(_END):
            self._done.put_nowait(len(self._kept))


async def keep(port: int, streams: int, tokens: int) -> float:
    """CPU µs per token."""
    body = b'{"prompt":[1],"max_tokens":%d,"stream":true}' % tokens
    head = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body)
    loop = asyncio.get_running_loop()
    done: asyncio.Queue[int] = asyncio.Queue()
    before = time.process_time_ns()
    for _ in range(streams):
        await loop.create_connection(lambda: Keeper(head + body, done), "127.0.0.1", port)
    for _ in range(streams):
        await done.get()
    return (time.process_time_ns() - before) / 1000 / (streams * tokens)


if __name__ == "__main__":
    port, streams, tokens, core = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    go_first()
    print(uvloop.run(keep(port, streams, tokens)))
