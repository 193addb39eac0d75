"""A plain TCP connection whose socket somebody else watches and reads, as asyncio knows transports."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Protocol

from harness.client.chunk_reader import StreamSlot
from harness.client.tcp_info import out_of_order


class Reader(Protocol):
    """What a plain transport asks of its protocol, beside what asyncio's do."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It may write."""

    def arrived(self, data: memoryview, ns: int) -> None:
        """What one read brought, the last of it at `ns`. The memory is used again after the call."""

    def eof_received(self) -> object:
        """Nothing more will come."""

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""


class Watcher(Protocol):
    """Who watches the socket and reads it."""

    def detach(self, transport: "PlainTransport") -> None:
        """Forget it; its socket is still open."""

    def watch_writing(self, transport: "PlainTransport", wanted: bool) -> None:
        """Whether to call `writable` when the socket takes more bytes."""

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """In the loop's next round."""


class PlainTransport(asyncio.Transport):
    """A TCP connection without TLS, as asyncio knows transports. Writes go to the kernel at once, as far as it lets.

    latest_ns: when the latest bytes arrived that Python read; before any did, when it was made. slot: by which the
    compiled reader reads it too, also its protocol's as extra info; None where it does not.
    """

    def __init__(
        self, receiver: Watcher, sock: socket.socket, protocol: Reader, slot: StreamSlot | None = None
    ) -> None:
        super().__init__({"socket": sock, "slot": slot})
        self.slot = slot
        self.fd = sock.fileno()
        self.receive = sock.recvmsg_into
        self.arrived = protocol.arrived
        self.latest_ns = monotonic_ns()
        self._receiver = receiver
        self._socket = sock
        self._protocol: Reader = protocol
        self._unsent = bytearray()
        self._refused: OSError | None = None  # why the kernel takes no more bytes
        self._out_of_order = 0
        self._closing = False

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def waited_for_segment(self) -> bool:
        """Whether segments have come before one that was sent earlier, since this was last asked.

        What had come was not there to be read until the missing one came, and has an instant before that.
        """
        before, self._out_of_order = self._out_of_order, out_of_order(self._socket)
        return self._out_of_order != before

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data`, what the kernel does not take at once as soon as it does."""
        if self._closing or self._refused is not None:
            return
        self._unsent += data
        self.writable()

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._unsent)

    def writable(self) -> None:
        """Send what waits, as far as the kernel takes it.

        Where it refuses, what the server has said before it went is still read, and then it is over.
        """
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent)
                del self._unsent[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._refused = error
            with contextlib.suppress(OSError):  # reset: its end is there already
                self._socket.shutdown(socket.SHUT_RDWR)
        self._receiver.watch_writing(self, bool(self._unsent) and self._refused is None)

    def abort(self) -> None:
        """Close at once; what has not been sent is dropped."""
        self.lose(None)

    def close(self) -> None:
        """The same: who closes here has nothing more to say."""
        self.lose(None)

    def ended(self) -> None:
        """Nothing more comes: the other side has closed, or takes no more."""
        if self._refused is None:
            self._protocol.eof_received()
        self.lose(self._refused)

    def lose(self, error: Exception | None) -> None:
        """It is over, because of `error` if there is one. The protocol hears of it in the loop's next round."""
        if self._closing:
            return
        self._closing = True
        self._unsent.clear()
        self._receiver.detach(self)
        self._receiver.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._socket.close()
