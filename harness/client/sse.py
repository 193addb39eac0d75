"""An incremental parser of event streams, by the WHATWG HTML standard's section on server-sent events.

It takes bytes as they were read, split anywhere, and gives each event with the read that completed it.
"""

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_LONGEST_RETRY = 16  # digits; what is longer is no time that anyone would wait


@dataclass(slots=True)
class ServerEvent:
    """One dispatched event.

    at: what the parser was told of the read that completed it. type: "message" where the stream names none.
    id: the last id seen in the stream so far.
    """

    at: int
    type: str
    data: str
    id: str


class EventStreamParser:
    """Feed it reads in order. What no blank line has ended is no event, as the standard says.

    retry_ms: the last reconnection time the server stated, None for none. comments: lines that were comments.
    ignored, ignored_sample: lines whose field the standard does not know, which it throws away, and the first.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line not ended yet, in the pieces that came
        self._after_cr = False  # the last line ended with CR; an LF that follows belongs to it
        self._first = True
        self._type = ""
        self._data: list[str] = []
        self._id = ""
        self.retry_ms: int | None = None
        self.comments = 0
        self.ignored = 0
        self.ignored_sample: str | None = None

    @property
    def unfinished(self) -> str:
        """What no blank line has ended so far."""
        lines = [f"data: {line}" for line in self._data]
        rest = b"".join(self._rest).decode("utf-8", "replace")
        return "\n".join([*lines, rest] if rest else lines)

    def feed(self, at: int, data: bytes) -> list[ServerEvent]:
        """Take the bytes of one read; return the events it completed, which bear `at`: an instant, an offset."""
        events: list[ServerEvent] = []
        for line in self._lines(data):
            if line:
                self._field(line)
            elif (event := self._dispatch(at)) is not None:
                events.append(event)
        return events

    def _lines(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends (CR, LF or CRLF)."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if self._first:
            data = b"".join(self._rest) + data
            self._rest = []
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest = [data]
                return []
            self._first = False
            data = data.removeprefix(_BOM)
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = data.split(b"\n")
        if lines and self._rest:  # joined once: a line in a thousand pieces is not copied a thousand times
            lines[0] = b"".join([*self._rest, lines[0]])
        if lines:
            self._rest = []
        if rest:
            self._rest.append(rest)
        return lines

    def _field(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if not name and colon:
            self.comments += 1
            return
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._type = text
        elif name == b"id":
            if "\0" not in text:
                self._id = text
        elif name == b"retry":
            if text.isascii() and text.isdigit() and len(text) < _LONGEST_RETRY:
                self.retry_ms = int(text)
        else:
            self.ignored += 1
            if self.ignored_sample is None:
                self.ignored_sample = line.decode("utf-8", "replace")

    def _dispatch(self, at: int) -> ServerEvent | None:
        kind, self._type = self._type, ""
        if not self._data:
            return None
        data, self._data = "\n".join(self._data), []
        return ServerEvent(at, kind or "message", data, self._id)
