"""What the HTTP process and the engine process say to each other, and how it is framed on their socket.

A frame is a length (4 bytes, big-endian) and a pickle. Both ends are this program, so the pickle is trusted.
"""

import pickle
import select
import socket
import struct
from dataclasses import dataclass

from backends.serving.engine import RequestOutput, Sampling

HEADER = struct.Struct(">I")
_READ_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Add:
    """HTTP → engine: a new request."""

    request_id: int
    ids: list[int]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Cancel:
    """HTTP → engine: nobody waits for this request any more."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Engine → HTTP, first: the model is loaded."""

    capacity_tokens: int
    gauges: dict[str, float]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Engine → HTTP, after every step: everything that came of it, in one message."""

    outputs: list[RequestOutput]
    gauges: dict[str, float]


Command = Add | Cancel
Report = Ready | Outputs


def frame(message: Command | Report) -> bytes:
    """The bytes of one message."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(body)) + body


class CommandSocket:
    """The engine's end: reads what has arrived without waiting, unless it is told to wait."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def receive(self, wait: bool) -> list[Command]:
        """All commands that have arrived; with `wait`, at least one. EOFError once the other end is gone."""
        while True:
            while select.select([self._connection], [], [], 0)[0]:
                data = self._connection.recv(_READ_SIZE)
                if not data:
                    raise EOFError
                self._buffer += data
            commands = self._complete()
            if commands or not wait:
                return commands
            select.select([self._connection], [], [])

    def _complete(self) -> list[Command]:
        commands: list[Command] = []
        while len(self._buffer) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                break
            commands.append(pickle.loads(self._buffer[HEADER.size : end]))
            del self._buffer[:end]
        return commands

    def send(self, report: Report) -> None:
        """Send one report; the other end always reads, so this does not wait for long."""
        self._connection.sendall(frame(report))
