"""What the kernel knows of a TCP connection."""

import socket
import struct

# struct tcp_info of linux/tcp.h
_BYTES_ACKED = struct.Struct("=Q"), 120
_OUT_OF_ORDER = struct.Struct("=I"), 224  # tcpi_rcv_ooopack, since Linux 5.4


def bytes_acked(sock: socket.socket) -> int:
    """Bytes the peer's kernel has acknowledged on this connection, its opening included; 0 if unknown.

    A kernel acknowledges what an open socket receives, at the latest with the close that follows; so a request of
    which nothing was acknowledged cannot have been read by anyone.
    """
    return _told(sock, *_BYTES_ACKED)


def out_of_order(sock: socket.socket) -> int:
    """Segments that came before one that was sent earlier, so far; 0 if unknown."""
    return _told(sock, *_OUT_OF_ORDER)


def _told(sock: socket.socket, number: struct.Struct, at: int) -> int:
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + number.size)
    except OSError:
        return 0
    if len(info) < at + number.size:
        return 0
    told: int = number.unpack_from(info, at)[0]
    return told
