"""What the HTTP process and the engine process say to each other, and how it is framed on their socket.

A frame is a length (4 bytes, big-endian) and a pickle. Both ends are this program, so the pickle is trusted. Messages
are tuples: the interpreter makes and pickles them several times faster than dataclasses, and at every step the engine
waits for that.
"""

import pickle
import select
import socket
import struct
from typing import Any, NamedTuple

from backends.serving.engine import RequestOutput, Sampling

_HEADER = struct.Struct(">I")
_READ_SIZE = 1 << 20


class Add(NamedTuple):
    """HTTP → engine: a new request."""

    request_id: int
    ids: list[int]
    sampling: Sampling


class Cancel(NamedTuple):
    """HTTP → engine: nobody waits for this request any more."""

    request_id: int


class Ready(NamedTuple):
    """Engine → HTTP, first: the model is loaded."""

    capacity_tokens: int
    gauges: dict[str, float]


class Outputs(NamedTuple):
    """Engine → HTTP, after every step: everything that came of it, in one message."""

    outputs: list[RequestOutput]
    gauges: dict[str, float]


Command = Add | Cancel
Report = Ready | Outputs


def frame(message: Command | Report) -> bytes:
    """The bytes of one message."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(body)) + body


class Frames:
    """The messages in a stream of bytes, which arrives in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Add bytes; the messages that are complete now, in order."""
        self._buffer += data
        messages: list[Any] = []
        start = 0
        while len(self._buffer) >= start + _HEADER.size:
            body = start + _HEADER.size
            end = body + _HEADER.unpack_from(self._buffer, start)[0]
            if len(self._buffer) < end:
                break
            messages.append(pickle.loads(self._buffer[body:end]))
            start = end
        del self._buffer[:start]
        return messages


class CommandSocket:
    """The engine's end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = Frames()

    def receive(self, wait_s: float | None) -> list[Command]:
        """All commands that have arrived; where there is none, it waits so long for one (None: for ever).

        Raises EOFError once the other end is gone.
        """
        commands: list[Command] = []
        patience = wait_s
        while select.select([self._connection], [], [], patience)[0]:
            data = self._connection.recv(_READ_SIZE)
            if not data:
                raise EOFError
            commands += self._frames.feed(data)
            patience = 0 if commands else wait_s  # a part of a frame is no command yet
        return commands

    def send(self, report: Report) -> None:
        """Send one report; the other end always reads, so this does not wait for long."""
        self._connection.sendall(frame(report))
