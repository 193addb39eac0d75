"""A server that answers every request with the same bytes, whatever they are."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Send = Callable[[bytes], None]


@contextlib.contextmanager
def raw_server(answer: Callable[[Send], None], host: str = "127.0.0.1") -> Iterator[str]:
    """Serve one connection at a time in a thread; yields the base URL.

    `answer` writes what it likes after each request's head and body were read; then the connection is closed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        thread = threading.Thread(target=_serve, args=(listening, answer))
        thread.start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listening: socket.socket, answer: Callable[[Send], None]) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            got = b""
            while b"\r\n\r\n" not in got:
                more = connection.recv(65536)
                if not more:
                    break
                got += more
            else:
                head, _, body = got.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                while len(body) < length:
                    body += connection.recv(65536)
                answer(connection.sendall)
