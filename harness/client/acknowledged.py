"""How much of what was written a peer has acknowledged, as the kernel knows it."""

import socket
import struct

_TCP_INFO_BYTES, _BYTES_ACKED_AT = 192, 120  # struct tcp_info of linux/tcp.h, tcpi_bytes_acked


def bytes_acked(sock: socket.socket) -> int:
    """Bytes the peer's kernel has acknowledged on this connection, its opening included; 0 if unknown.

    A kernel acknowledges what an open socket receives, at the latest with the close that follows; so a request of
    which nothing was acknowledged cannot have been read by anyone.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return 0
    if len(info) < _BYTES_ACKED_AT + 8:
        return 0
    acked: int = struct.unpack_from("<Q", info, _BYTES_ACKED_AT)[0]
    return acked
