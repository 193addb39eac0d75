"""The measuring loop's end of the helper process that builds later turns: bytes out, bytes in."""

import asyncio
import contextlib
import struct
import sys
from collections.abc import Callable
from typing import Any

import orjson

FRAME = struct.Struct("<IIQ")  # request, prompt tokens, bytes that follow


class HistoryLink:
    """Passes finished answers to `python -m harness.client.history` and takes request bodies from it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        on_body: Callable[[int, int, bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the helper has no pipes")
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._reader = asyncio.get_running_loop().create_task(self._read(on_body, on_end))

    @classmethod
    async def start(
        cls, setup: dict[str, Any], on_body: Callable[[int, int, bytes], None], on_end: Callable[[], None]
    ) -> "HistoryLink":
        """Start the helper and wait until it has loaded its tokenizer.

        `on_body(request, prompt tokens, body)`: a later turn's body, empty if it cannot be built. `on_end()`: the
        helper is gone, whatever the reason.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "harness.client.history",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the helper has no pipes")
        process.stdin.write(orjson.dumps(setup) + b"\n")
        if await process.stdout.readline() != b"ready\n":
            raise RuntimeError("the helper that builds later turns did not start")
        return cls(process, on_body, on_end)

    def answer(self, request: int, body: bytes) -> None:
        """What `request` was answered, as raw bytes of the event stream; empty if it failed."""
        if not self._reader.done():
            self._input.write(FRAME.pack(request, 0, len(body)) + body)

    async def close(self) -> None:
        """End the helper."""
        self._reader.cancel()
        self._input.close()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _read(self, on_body: Callable[[int, int, bytes], None], on_end: Callable[[], None]) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                request, tokens, length = FRAME.unpack(await self._output.readexactly(FRAME.size))
                on_body(request, tokens, await self._output.readexactly(length))
        on_end()
