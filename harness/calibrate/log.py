"""The truth server's log: when each request had been read and when each of its tokens was sent.

Little-endian: 8 bytes of magic, two int64 (gap between tokens in ns; writes that a full socket held back), then
each streamed request by arrival: its X-Request-Id in 64 bytes padded with zeros, int64 instants of reception and of
its first due token, uint32 counts of tokens asked and sent, and an int64 instant for each token sent. Instants are
nanoseconds of CLOCK_MONOTONIC.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.core.errors import HarnessError

_MAGIC = b"TRUTH 1\0"
_START = np.dtype([("magic", "S8"), ("itl_ns", "<i8"), ("held", "<i8")])
_HEAD = np.dtype(
    [("id", "S64"), ("received_ns", "<i8"), ("due_ns", "<i8"), ("asked", "<u4"), ("sent", "<u4")]
)


@dataclass(frozen=True, slots=True)
class TrueRequest:
    """One request as the server saw it; sends: int64 array of instants in ns, one a token."""

    id: str
    received_ns: int
    due_ns: int
    asked: int
    sends: np.ndarray


@dataclass(frozen=True, slots=True)
class TrueLog:
    """A whole log. held: writes that waited, since the client had let its socket fill up."""

    itl_ns: int
    held: int
    requests: list[TrueRequest]

    def lateness_ns(self) -> np.ndarray:
        """By how much each token left later than its schedule says."""
        parts = [one.sends - one.due_ns - self.itl_ns * np.arange(len(one.sends)) for one in self.requests]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def read_log(path: Path) -> TrueLog:
    """Read a log whole. Raises HarnessError if the server left none, or one that is cut short."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HarnessError(f"The truth server left no log ({error.strerror}); run it again.") from error
    if len(data) < _START.itemsize or not data.startswith(_MAGIC):
        raise HarnessError(f"{path} is no log of the truth server.")
    start = np.frombuffer(data, _START, 1)[0]
    requests: list[TrueRequest] = []
    at = _START.itemsize
    while at < len(data):
        if at + _HEAD.itemsize > len(data):
            raise HarnessError(f"{path} is cut short: the truth server was killed or the disk is full.")
        head = np.frombuffer(data, _HEAD, 1, at)[0]
        at += _HEAD.itemsize
        sent = int(head["sent"])
        if at + 8 * sent > len(data):
            raise HarnessError(f"{path} is cut short: the truth server was killed or the disk is full.")
        sends = np.frombuffer(data, "<i8", sent, at)
        at += sends.nbytes
        name = bytes(head["id"]).decode("latin-1")
        requests.append(
            TrueRequest(name, int(head["received_ns"]), int(head["due_ns"]), int(head["asked"]), sends)
        )
    return TrueLog(int(start["itl_ns"]), int(start["held"]), requests)
