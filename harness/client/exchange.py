"""One request on its way: the few facts the client needs while the clock runs."""

from harness.client.chunk_reader import StreamSlot
from harness.client.setup import Limits


class Exchange:
    """State of one request.

    payload: the whole HTTP request; None until a body that depends on earlier answers is there, and once
        done.
    launched: counted as in flight. kept: the answer's bytes, where a later turn needs them.
    first_sent_ns: of a request that was sent again after an error, when it was sent first; else 0. retries: how
        often that was. retried: it was sent again since nobody had read it, which is no error.
    slot: of the compiled reader, while that reads the answer; what it read since is not in last_read_ns and reads.
    """

    __slots__ = (
        "first_sent_ns",
        "headers_ns",
        "kept",
        "last_read_ns",
        "launched",
        "over",
        "payload",
        "reads",
        "request",
        "retried",
        "retries",
        "scheduled_ns",
        "sent_ns",
        "session",
        "slot",
        "status",
        "turn",
    )

    def __init__(
        self, request: int, session: int, turn: int, scheduled_ns: int, payload: bytes | None, feeds: bool
    ) -> None:
        self.request = request
        self.session = session
        self.turn = turn
        self.scheduled_ns = scheduled_ns
        self.payload = payload
        self.kept: list[bytes] | None = [] if feeds else None
        self.sent_ns = 0
        self.headers_ns = 0
        self.last_read_ns = 0
        self.reads = 0
        self.launched = False
        self.retried = False
        self.retries = 0
        self.first_sent_ns = 0
        self.status = 0
        self.slot: StreamSlot | None = None
        self.over = False

    def again(self) -> None:
        """Forget the last try; the request will be sent once more."""
        self.first_sent_ns = self.first_sent_ns or self.sent_ns
        self.retries += 1
        self.retried = False
        self.slot = None
        self.sent_ns = self.headers_ns = self.last_read_ns = self.reads = self.status = 0
        self.kept = None if self.kept is None else []

    @property
    def was_sent(self) -> bool:
        """Whether it has been sent at all, in this try or an earlier one."""
        return bool(self.first_sent_ns or self.sent_ns)

    def spent_ns(self, limits: Limits) -> int:
        """When the whole request has taken too long, all tries together."""
        return (self.first_sent_ns or self.sent_ns) + limits.request_ns

    def deadline_ns(self, limits: Limits) -> int:
        """When patience ends, if nothing more arrives.

        Bytes are not parsed here, and a stream may open with an event that holds no token; so until a second
        read the longer of the two limits holds.
        """
        last_read_ns, reads = self.last_read_ns, self.reads
        if self.slot is not None and self.slot.reads:
            last_read_ns, reads = self.slot.latest_ns, reads + self.slot.reads
        quiet = last_read_ns + limits.token_ns
        if reads < 2:
            quiet = max(quiet, self.sent_ns + limits.first_token_ns)
        return min(quiet, self.spent_ns(limits))
