"""When bytes reached this machine: the kernel's receive timestamps, brought to CLOCK_MONOTONIC.

With SO_TIMESTAMPNS the kernel hands out, with the bytes of a read, when the last segment of them came in. It uses
CLOCK_REALTIME; that differs from CLOCK_MONOTONIC by a constant until somebody sets the clock.
"""

import asyncio
import socket
import struct
from time import monotonic_ns, time_ns

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module has no name for it
_TIMESPEC = struct.Struct("@ll")
ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_ALIKE_NS = 5_000  # two looks at the clocks that differ by less show no step: they are 0.1 µs apart
_LOOKS = 9

timespec = _TIMESPEC.unpack


def ask_for_stamps(sock: socket.socket) -> bool:
    """Have the kernel stamp what arrives on `sock`; False where it does not know how."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


async def stamping_began(patience_s: float) -> bool:
    """Wait until the kernel stamps what arrives; False if it does not within `patience_s`.

    It begins a moment after the first socket of the machine asked for it, on a busy machine a long one, and goes on
    while there is such a socket.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
    except OSError:
        return False
    with ours, theirs:
        until_ns = monotonic_ns() + round(patience_s * 1e9)
        asked = ask_for_stamps(ours)
        while asked and monotonic_ns() < until_ns:
            theirs.sendall(b"x")
            if ours.recvmsg(1, ANCILLARY_BYTES)[1]:
                return True
            await asyncio.sleep(0.001)
    return False


class ClockOffset:
    """What to take from a CLOCK_REALTIME instant to have it in CLOCK_MONOTONIC: `ns`."""

    def __init__(self) -> None:
        self.ns = self._look()

    def held(self, now_ns: int) -> bool:
        """Whether the clock has not been set since the last call; where it was, `ns` is right from now on.

        now_ns: CLOCK_MONOTONIC just now.
        """
        if -_ALIKE_NS < time_ns() - now_ns - self.ns < _ALIKE_NS:
            return True
        offset = self._look()  # set, or this process was held up between the two clocks
        held = abs(offset - self.ns) < _ALIKE_NS
        self.ns = offset
        return held

    @staticmethod
    def _look() -> int:
        """The offset by the two clocks read as close together as a few tries allow."""
        looks = ((monotonic_ns(), time_ns(), monotonic_ns()) for _ in range(_LOOKS))
        before, wall, after = min(looks, key=lambda look: look[2] - look[0])
        return wall - (before + after) // 2
