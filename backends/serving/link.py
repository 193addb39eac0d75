"""The HTTP process's view of the engine process: start it, hand it requests, give out what comes back."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backends.serving.engine import RequestOutput, Sampling
from backends.serving.messages import Add, Cancel, Frames, Ready, Report, frame
from harness.core.metric_names import (
    GENERATED_TOKENS,
    PROMPT_TOKENS,
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
)


class EngineGone(Exception):
    """The engine process ended; the message says how."""


class EngineLink:
    """A running engine process.

    capacity_tokens: most tokens a request can hold; None until the engine is ready. gone: resolves to the
    reason once the engine process has ended.
    """

    def __init__(self) -> None:
        self.capacity_tokens: int | None = None
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._gauges: dict[str, float] = {}
        self._prompt_tokens = 0
        self._generated_tokens = 0
        self._next_id = 0
        self._waiting: dict[int, asyncio.Queue[RequestOutput | EngineGone]] = {}
        self._transport: asyncio.Transport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self, arguments: Sequence[str]) -> None:
        """Start the worker; it is ready once `capacity_tokens` is set."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "backends.serving.worker", "--socket", str(theirs.fileno())),
                *arguments,
                # Safe-path keeps the working folder's files out; the worker finds what this process found.
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
                },
                pass_fds=[theirs.fileno()],
            )
        reports = _Reports(self._take)
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: reports, sock=ours)
        self._watching = asyncio.create_task(self._watch(self._process, reports.ended))

    def submit(
        self, ids: list[int], sampling: Sampling
    ) -> "tuple[int, asyncio.Queue[RequestOutput | EngineGone]]":
        """Hand over a request: its id, and the queue on which its outputs arrive. Raises EngineGone."""
        if self.gone.done():
            raise EngineGone(self.gone.result())
        request_id = self._next_id
        self._next_id += 1
        queue: asyncio.Queue[RequestOutput | EngineGone] = asyncio.Queue()
        self._waiting[request_id] = queue
        self._prompt_tokens += len(ids)
        self._send(Add(request_id, ids, sampling))
        return request_id, queue

    def cancel(self, request_id: int) -> None:
        """Nobody waits any more; does nothing for a request that has ended."""
        if self._waiting.pop(request_id, None) is not None and not self.gone.done():
            self._send(Cancel(request_id))

    def metrics(self) -> dict[str, float]:
        """Gauges and counters by their common names."""
        taken = len(self._waiting)
        running = min(self._gauges.get(REQUESTS_RUNNING, 0), taken)
        return {
            **self._gauges,
            REQUESTS_RUNNING: running,
            REQUESTS_WAITING: taken - running,
            PROMPT_TOKENS: self._prompt_tokens,
            GENERATED_TOKENS: self._generated_tokens,
        }

    async def close(self) -> None:
        """End the worker; it is killed if it does not end within a second (it may be inside a long step)."""
        if self._process is None or self._transport is None or self._watching is None:
            return
        self._transport.close()
        try:
            await asyncio.wait_for(self._process.wait(), 1.0)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._watching

    def _send(self, command: Add | Cancel) -> None:
        if self._transport is not None and not self._transport.is_closing():
            # Buffered: the engine reads between two steps, the loop never waits.
            self._transport.write(frame(command))

    async def _watch(self, process: asyncio.subprocess.Process, ended: "asyncio.Future[None]") -> None:
        await ended
        status = await process.wait()
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        reason = f"The engine process ended ({how}); its output says why."
        self.gone.set_result(reason)
        for queue in self._waiting.values():
            queue.put_nowait(EngineGone(reason))

    def _take(self, report: Report) -> None:
        self._gauges = report.gauges
        if isinstance(report, Ready):
            self.capacity_tokens = report.capacity_tokens
            return
        for output in report.outputs:
            self._generated_tokens += len(output.token_ids)
            queue = self._waiting.get(output.request_id)
            if queue is not None:
                queue.put_nowait(output)
                if output.finish or output.error:
                    del self._waiting[output.request_id]


class _Reports(asyncio.Protocol):
    """Reads what the engine sends; `ended` resolves when nothing more will come.

    A protocol and no stream: a message a step is taken where it arrives, without waking a task for it.
    """

    def __init__(self, take: Callable[[Report], None]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._take = take
        self._frames = Frames()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        for report in self._frames.feed(data):
            self._take(report)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop, at the end of file, after an error and after `close`."""
        self.ended.set_result(None)
