"""What the client process is told, over its standard input: addresses, secrets, sessions, limits."""

import dataclasses
import struct
from typing import IO, Any

import orjson

from harness.core.tls import Trust

_LENGTH = struct.Struct("<Q")


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session: its number within the job, and where its body lies in the file of bodies.

    length is 0 where the body is built from earlier answers; `feeds` says that a later turn needs this
    answer. name: its X-Request-Id, by which a server's log can be matched; empty for none. at_ns: of a later turn,
    when it is due after the start of the run, at the earliest when the answer before it is complete; None: think_ns
    after that.
    """

    request: int
    offset: int
    length: int
    think_ns: int
    feeds: bool
    name: str = ""
    at_ns: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts and bounds in nanoseconds; duration and cap None for none. See LoadOptions."""

    connect_ns: int
    first_token_ns: int
    token_ns: int
    request_ns: int
    drain_ns: int
    duration_ns: int | None
    cap: int | None
    retries: int = 0
    retry_wait_ns: int = 0

    @property
    def shortest_ns(self) -> int:
        """The shortest patience in any phase."""
        return min(self.connect_ns, self.first_token_ns, self.token_ns, self.request_ns)


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """Everything the client process needs. `head` carries the key, so this never touches disk or argv.

    worker, workers: which of how many processes that share the load it is (`harness.client.fanout`). permits: ends of
    the pipe through which they share a bound on requests in flight. chunk_reader: the library of the compiled
    reader; None where Python reads.
    """

    host: str
    port: int
    tls: bool
    trust: Trust
    head: str
    connections: int
    arrival: dict[str, Any]
    sessions: tuple[tuple[Turn, ...], ...]
    limits: Limits
    bodies: str
    journal: str
    result: str
    counters_fd: int
    history: dict[str, Any] | None
    cpus: tuple[int, ...] | None
    worker: int = 0
    workers: int = 1
    chunk_reader: str | None = None
    permits: tuple[int, int] | None = None

    def with_descriptors(self, counters: int, permits: tuple[int, int] | None) -> "Setup":
        """The same with the descriptors of the shared counters, and of the permits where workers share them."""
        return dataclasses.replace(self, counters_fd=counters, permits=permits)


def send_setup(setup: Setup, pipe: IO[bytes]) -> None:
    """Write `setup` so that the pipe can stay open behind it."""
    data = orjson.dumps(setup)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive_setup(pipe: IO[bytes]) -> Setup:
    """Read what `send_setup` wrote. Raises EOFError if the other side went away."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    length = _LENGTH.unpack(head)[0]
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    fields = orjson.loads(data)
    fields["sessions"] = tuple(tuple(Turn(**turn) for turn in session) for session in fields["sessions"])
    fields["limits"] = Limits(**fields["limits"])
    fields["trust"] = Trust(**fields["trust"])
    for name in ("cpus", "permits"):
        if fields[name] is not None:
            fields[name] = tuple(fields[name])
    return Setup(**fields)
