"""One request on its way: the few facts the client needs while the clock runs."""

from harness.client.setup import Limits


class Exchange:
    """State of one request.

    payload: the whole HTTP request; None until a body that depends on earlier answers is there, and once
        done.
    launched: counted as in flight. kept: the answer's bytes, where a later turn needs them.
    """

    __slots__ = (
        "headers_ns",
        "kept",
        "last_read_ns",
        "launched",
        "over",
        "payload",
        "reads",
        "request",
        "retried",
        "scheduled_ns",
        "sent_ns",
        "session",
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
        self.over = False

    def deadline_ns(self, limits: Limits) -> int:
        """When patience ends, if nothing more arrives.

        Bytes are not parsed here, and a stream may open with an event that holds no token; so until a second
        read the longer of the two limits holds.
        """
        quiet = self.last_read_ns + limits.token_ns
        if self.reads < 2:
            quiet = max(quiet, self.sent_ns + limits.first_token_ns)
        return min(quiet, self.sent_ns + limits.request_ns)
