"""Reads all plain connections of the process, each arrival with the kernel's own instant, in moderated wake-ups.

A client woken for every token spends most of its time on falling asleep and waking up. This one is woken at once by
what comes after a quiet moment; while much comes, it looks at regular instants and reads all there is. The event
loop is never held up: timers and everything else go on between two looks.
"""

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterable, Sequence
from errno import EIO
from itertools import starmap
from time import monotonic_ns
from typing import Any

from harness.client.arrival_clock import ANCILLARY_BYTES, ClockOffset, ask_for_stamps, timespec
from harness.client.chunk_reader import ChunkReader, Ready
from harness.client.moderation import LONGEST_NS, Moderation
from harness.client.plain_transport import PlainTransport, Reader
from harness.client.timerfd import TimerFd

_READ_BYTES = 1 << 16
_READS_AT_ONCE = 8  # of one connection that has more than _READ_BYTES; then the others have their turn
_DATA: int = select.EPOLLIN
# Told once of what arrives, and then only of more: a socket that was read empty is not looked at again.
_ARRIVALS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_SECOND_NS = 1_000_000_000


class Receiver:
    """The sockets of a process in an epoll set of their own, which the event loop watches as one descriptor.

    chunk_reader: reads streams in mid-answer; None where Python reads those too.
    stamped: the kernel took the wish for its instants, on every connection so far. by_process: reads whose instant
    it did not tell all the same, or one that cannot have been (somebody set the clock) or that is too early (an
    earlier segment was missing); they have the instant of the read. While there are such, there are no pauses.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, chunk_reader: ChunkReader | None = None) -> None:
        self._loop = loop
        self._chunk_reader = chunk_reader
        self._sockets = select.epoll()
        self._sources = select.epoll()  # the sockets together, the timer, and who waits to write
        self._timer = TimerFd()
        self._ports: dict[int, PlainTransport] = {}
        self._writing: dict[int, PlainTransport] = {}
        self._buffer = bytearray(_READ_BYTES)
        self._into = [self._buffer]
        self._view = memoryview(self._buffer)
        self._ticking_ns = 0  # the pause that the timer keeps; 0: the sockets wake the loop themselves
        self._looked_ns = 0
        # Of the look under way: the latest instant, whether nobody has set the clock, what was read.
        self._now = 0
        self._held = True
        self._reads = 0
        self._short = 0
        self.offset = ClockOffset()
        self.moderation = Moderation()
        self.stamped = True
        self.by_process = 0
        self._sources.register(self._sockets.fileno(), select.EPOLLIN)
        self._sources.register(self._timer.fd, select.EPOLLIN)
        loop.add_reader(self._sources.fileno(), self._wake)

    def attach(self, sock: socket.socket, protocol: Reader) -> PlainTransport:
        """Read the connected, non-blocking `sock` for `protocol` from now on, and own it."""
        slot = self._chunk_reader.slot(sock.fileno()) if self._chunk_reader is not None else None
        transport = PlainTransport(self, sock, protocol, slot)
        self.stamped &= ask_for_stamps(sock)
        protocol.connection_made(transport)
        self._ports[transport.fd] = transport
        self._sockets.register(transport.fd, _ARRIVALS)
        return transport

    def close(self) -> None:
        """Watch nothing any more. Every transport has been aborted before."""
        self._loop.remove_reader(self._sources.fileno())
        self._sources.close()
        self._sockets.close()
        self._timer.close()

    # For the transports

    def detach(self, transport: PlainTransport) -> None:
        """Forget a transport, whose socket is still open."""
        if self._ports.pop(transport.fd, None) is not None:
            self._sockets.unregister(transport.fd)
            if transport.slot is not None:
                transport.slot.withhold()
        self.watch_writing(transport, False)

    def watch_writing(self, transport: PlainTransport, wanted: bool) -> None:
        """Whether to tell `transport` at once when its socket takes more bytes."""
        if wanted and transport.fd not in self._writing:
            self._writing[transport.fd] = transport
            self._sources.register(transport.fd, select.EPOLLOUT)
        elif not wanted and self._writing.pop(transport.fd, None) is not None:
            self._sources.unregister(transport.fd)

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """In the loop's next round."""
        self._loop.call_soon(call, *arguments)

    # Waking up

    def _wake(self) -> None:
        if self._writing:
            for fd, _ in self._sources.poll(0):
                if fd in self._writing:
                    self._writing[fd].writable()
        if self._ticking_ns and not self._timer.rang():
            return  # only for who writes
        before = self.by_process
        now = monotonic_ns()
        late = self._ticking_ns > 0 and now - self._looked_ns > self.moderation.gap_ns
        self._looked_ns = now
        reads, short = self._read_all(now)
        pause = self.moderation.woke(now, reads, short, late)
        if self.by_process != before or not reads:
            pause = 0
        if pause != self._ticking_ns:
            self._tick(pause)

    def _tick(self, pause_ns: int) -> None:
        """Look every `pause_ns` from now on; 0: be woken by what arrives."""
        if not (self._ticking_ns and pause_ns):
            self._sources.modify(self._sockets.fileno(), 0 if pause_ns else select.EPOLLIN)
        self._timer.ring_every(pause_ns)
        self._ticking_ns = pause_ns

    def _read_all(self, now: int) -> tuple[int, int]:
        """Read every socket that has something; returns how many reads that were, and how many came too soon."""
        ports, offset = self._ports, self.offset
        self._now = now
        self._held = offset.held(now)
        self._reads = self._short = 0
        ready: Iterable[Ready]
        if self._chunk_reader is not None and self._held:
            gap_ns = self.moderation.gap_ns
            ready = self._chunk_reader.look(self._sockets.fileno(), now, offset.ns, LONGEST_NS, gap_ns)
            self._reads, self._short = self._chunk_reader.reads, self._chunk_reader.short
        else:
            ready = starmap(Ready, self._sockets.poll(0, len(ports) or 1))
        for told in ready:
            port = ports.get(told.fd)
            if port is not None:  # else closed a moment ago, by what another one brought
                self._read(port, told)
        return self._reads, self._short

    def _read(self, port: PlainTransport, told: Ready) -> None:
        """Read one socket until it is empty; what has been read of it already comes first."""
        if port.slot is not None:
            port.latest_ns = max(port.latest_ns, port.slot.latest_ns)
        data, ns, errno = told.data, told.ns, told.errno
        for _ in range(_READS_AT_ONCE):
            if data is None and not errno:
                try:
                    size, ancillary, _, _ = port.receive(self._into, ANCILLARY_BYTES)
                except (BlockingIOError, InterruptedError):
                    return
                except OSError as error:
                    errno = error.errno or EIO
                else:
                    data = self._view[:size]
                    ns = self._instant(ancillary)
            if errno:
                port.lose(OSError(errno, os.strerror(errno)))
                return
            if not data:
                port.ended()
                return
            size = len(data)
            self._hand_on(port, data, ns)
            if (size < _READ_BYTES and told.events == _DATA) or port.is_closing():
                return  # read empty, and not the end
            data = None
        self._sockets.modify(told.fd, _ARRIVALS)  # told again of what is left

    def _instant(self, ancillary: Sequence[tuple[int, int, bytes]]) -> int:
        """What the kernel tells of a read, in CLOCK_MONOTONIC; 0 where it tells none, or none to be trusted."""
        if not (ancillary and self._held):
            return 0
        seconds, rest = timespec(ancillary[0][2])
        instant: int = seconds * _SECOND_NS + rest - self.offset.ns
        return instant

    def _hand_on(self, port: PlainTransport, data: memoryview, ns: int) -> None:
        """Tell the protocol of one read, of which the kernel says that it came at `ns`."""
        before = port.latest_ns
        if ns > self._now:  # it came while others were read
            self._now = monotonic_ns()
        late = self._now - ns > LONGEST_NS
        if not before <= ns <= self._now or (late and port.waited_for_segment()):
            ns = self._now = monotonic_ns()
            self.by_process += 1
        self._reads += 1
        self._short += ns - before < self.moderation.gap_ns
        port.latest_ns = ns
        port.arrived(data, ns)
