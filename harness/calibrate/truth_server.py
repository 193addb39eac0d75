"""The truth server in Python, for machines without a C compiler: same protocol, same bytes, same log.

    python -m harness.calibrate.truth_server PORT LOG TTFT_US ITL_US SPREAD_US

truth_server.c says what each argument means. This one carries about a tenth of the load. It needs nothing but the
standard library.
"""

import contextlib
import heapq
import itertools
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

_MAGIC = b"TRUTH 1\0"
_START = struct.Struct("<8sqq")
_HEAD = struct.Struct("<64sqqII")
_GOLDEN = 2654435769
_MOST_TOKENS = 1 << 24
_BATCH = 32
_READY = select.EPOLLIN | select.EPOLLRDHUP
_MODELS = (
    '{"object":"list","data":[{"id":"truth","object":"model","created":0,'
    '"owned_by":"truth","max_model_len":131072}]}'
)
_CHAT = (
    '{"id":"chatcmpl-","object":"chat.completion","created":0,"model":"truth",'
    '"choices":[{"index":0,"message":{"role":"assistant","content":" word"},'
    '"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
)
_COMPLETION = (
    '{"id":"cmpl-","object":"text_completion","created":0,"model":"truth",'
    '"choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":"length"}],'
    '"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
)
_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@dataclass(slots=True)
class Request:
    """One streamed request and its instants in ns."""

    name: str
    chat: bool
    prompt_tokens: int
    asked: int
    received_ns: int
    due_ns: int
    sends: list[int] = field(default_factory=list)

    def token(self, finish: str) -> bytes:
        """The event of one token."""
        if self.chat:
            return self._chat_chunk('{"content":" word"}', finish)
        return _event(
            f'{{"id":"cmpl-{self.name}","object":"text_completion","created":0,"model":"truth",'
            f'"choices":[{{"index":0,"text":" word","logprobs":null,"finish_reason":{finish}}}]}}'
        )

    def opening(self) -> bytes:
        """Status and headers; in a chat also a delta without text, which is no token."""
        role = self._chat_chunk('{"role":"assistant","content":""}', "null") if self.chat else b""
        return _STREAM + role

    def closing(self) -> bytes:
        """The last token, the usage, and the end."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        usage = (
            f'{{"id":"{"chatcmpl" if self.chat else "cmpl"}-{self.name}","object":"{kind}","created":0,'
            f'"model":"truth","choices":[],"usage":{{"prompt_tokens":{self.prompt_tokens},'
            f'"completion_tokens":{self.asked},"total_tokens":{self.asked + self.prompt_tokens}}}}}'
        )
        return self.token('"length"') + _event(usage) + _event("[DONE]") + b"0\r\n\r\n"

    def _chat_chunk(self, delta: str, finish: str) -> bytes:
        return _event(
            f'{{"id":"chatcmpl-{self.name}","object":"chat.completion.chunk","created":0,"model":"truth",'
            f'"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}'
        )


def _event(data: str) -> bytes:
    """One HTTP chunk that holds one server-sent event."""
    return f"{len(data) + 8:x}\r\ndata: {data}\n\n\r\n".encode("latin-1")


@dataclass(eq=False, slots=True)
class Connection:
    """One socket; `request` is what it streams, None for nothing."""

    socket: socket.socket
    arrived: bytes = b""
    unsent: bytes = b""
    request: Request | None = None
    event: bytes = b""
    gone: bool = False


class TruthServer:
    """Serves until told to end; `write_log` afterwards. Times in µs."""

    def __init__(self, port: int, ttft_us: int, itl_us: int, spread_us: int) -> None:
        self._ttft_us, self._itl_ns, self._spread_us = ttft_us, itl_us * 1000, spread_us
        self._requests: list[Request] = []
        self._due: list[tuple[int, int, Connection]] = []
        self._order = itertools.count()
        self._held = 0
        self._connections: dict[int, Connection] = {}
        self._poll = select.epoll()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self._poll.register(self._listener, select.EPOLLIN)
        self._wake, told = socket.socketpair()
        self._wake.setblocking(False)
        told.setblocking(False)
        self._told = told
        signal.set_wakeup_fd(told.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._poll.register(self._wake, select.EPOLLIN)
        self._poll.register(0, select.EPOLLIN)
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve until SIGTERM or the end of standard input."""
        while True:
            wait_s = -1.0
            if self._due:
                wait_s = max(0.0, (self._due[0][0] - time.monotonic_ns()) / 1e9)
            for fd, events in self._poll.poll(wait_s):
                if fd == self._listener.fileno():
                    self._welcome()
                elif fd == self._wake.fileno() or (fd == 0 and not os.read(0, 256)):
                    return
                elif fd in self._connections:
                    self._serve(self._connections[fd], events)
            for _ in range(_BATCH):
                if not self._due or self._due[0][0] > time.monotonic_ns():
                    break
                self._send_token(*heapq.heappop(self._due)[::2])

    def write_log(self, path: str) -> None:
        """What was sent when; the format is in log.py."""
        with open(path, "wb") as file:  # noqa: PTH123 - nothing but what a bare interpreter loads fast
            file.write(_START.pack(_MAGIC, self._itl_ns, self._held))
            for one in self._requests:
                name = one.name.encode("latin-1")
                file.write(_HEAD.pack(name, one.received_ns, one.due_ns, one.asked, len(one.sends)))
                file.write(struct.pack(f"<{len(one.sends)}q", *one.sends))

    def _welcome(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = self._listener.accept()
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[client.fileno()] = Connection(client)
                self._poll.register(client, _READY)

    def _serve(self, connection: Connection, events: int) -> None:
        if events & ~select.EPOLLOUT:
            try:
                data = connection.socket.recv(1 << 20)
                connection.arrived += data
                connection.gone = not data
            except BlockingIOError:
                pass
            except OSError:
                connection.gone = True
        if connection.unsent:
            unsent, connection.unsent = connection.unsent, b""
            self._put(connection, unsent)
            if not (connection.unsent or connection.gone):  # else it would be called writable without end
                self._poll.modify(connection.socket, _READY)
        self._understand(connection)
        if connection.gone:
            self._poll.unregister(connection.socket)
            del self._connections[connection.socket.fileno()]
            connection.socket.close()

    def _understand(self, connection: Connection) -> None:
        """Take every whole request there is; a next one waits until the stream before it is done."""
        while connection.request is None and not connection.gone and connection.arrived:
            head, blank, rest = connection.arrived.partition(b"\r\n\r\n")
            found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            length = int(found[1]) if found else 0
            if not blank or len(rest) < length:
                return
            received_ns = time.monotonic_ns()
            connection.arrived = rest[length:]
            self._take(connection, head, rest[:length], received_ns)

    def _take(self, connection: Connection, head: bytes, body: bytes, received_ns: int) -> None:
        chat = head.startswith(b"POST /v1/chat/completions ")
        if head.startswith(b"GET "):
            models = head.startswith(b"GET /v1/models")
            self._answer(connection, "200 OK", _MODELS if models else '{"status":"ok"}')
        elif not chat and not head.startswith(b"POST /v1/completions "):
            self._answer(connection, "404 Not Found", '{"error":{"message":"there is no such path"}}')
        elif b'"stream":true' in body or b'"stream": true' in body:
            self._start(connection, head, body, chat, received_ns)
        else:
            self._answer(connection, "200 OK", _CHAT if chat else _COMPLETION)

    def _start(self, connection: Connection, head: bytes, body: bytes, chat: bool, received_ns: int) -> None:
        name = re.search(rb'\r\nx-request-id: *([^\r\n"\\]*)', head, re.IGNORECASE)
        ids = re.search(rb'"prompt":\[([^\]]*)', body)
        part = len(self._requests) * _GOLDEN % (1 << 32)
        wait_us = self._ttft_us + (self._spread_us * part >> 32)
        request = Request(
            name=name[1][:63].decode("latin-1") if name else "",
            chat=chat,
            prompt_tokens=ids[1].count(b",") + 1 if ids else 1,
            asked=_number(body, b'"max_completion_tokens"', _number(body, b'"max_tokens"', 16)),
            received_ns=received_ns,
            due_ns=received_ns + wait_us * 1000,
        )
        self._requests.append(request)
        connection.request = request
        connection.event = request.token("null")
        heapq.heappush(self._due, (request.due_ns, next(self._order), connection))
        self._put(connection, request.opening())

    def _send_token(self, due_ns: int, connection: Connection) -> None:
        request = connection.request
        if request is None or connection.gone:
            return
        request.sends.append(time.monotonic_ns())
        if len(request.sends) < request.asked:
            self._put(connection, connection.event)
            heapq.heappush(self._due, (due_ns + self._itl_ns, next(self._order), connection))
        else:
            connection.request = None
            self._put(connection, request.closing())
            self._understand(connection)

    def _put(self, connection: Connection, data: bytes) -> None:
        if not connection.unsent:
            try:
                data = data[connection.socket.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                connection.gone = True
                return
        if data:
            self._held += 1
            connection.unsent += data
            self._poll.modify(connection.socket, _READY | select.EPOLLOUT)

    def _answer(self, connection: Connection, status: str, body: str) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._put(connection, (head + body).encode())


def _number(body: bytes, name: bytes, otherwise: int) -> int:
    found = re.search(re.escape(name) + rb"[^:]*: *(\d+)", body)
    value = int(found[1]) if found else 0
    return value if 0 < value <= _MOST_TOKENS else otherwise


def main(arguments: list[str]) -> int:
    """Serve by `arguments` (see the module); returns the exit code."""
    if len(arguments) != 5:
        print("usage: truth_server PORT LOG TTFT_US ITL_US SPREAD_US", file=sys.stderr)
        return 2
    port, log, ttft_us, itl_us, spread_us = arguments
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = TruthServer(int(port), int(ttft_us), int(itl_us), int(spread_us))
    print(f"listening on {server.port}", flush=True)
    server.run()
    server.write_log(log)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
