"""A link that holds some packets back, in a network of this process's own: `unshare -rn python -m …`.

Packets into a TUN device come back with their two addresses changed for each other (which leaves every checksum as
it is), so that this machine's TCP talks to itself by way of this program.
"""

import fcntl
import os
import struct
import subprocess
import threading
from collections.abc import Callable
from queue import SimpleQueue

HERE, THERE = "10.77.0.1", "10.77.0.2"  # a connection to THERE arrives at HERE
_TUNSETIFF, _TUN_WITHOUT_HEADERS = 0x400454CA, 0x1001
_SOURCE, _DESTINATION, _BEHIND = 12, 16, 20  # offsets in an IPv4 header


def open_link(mark: bytes) -> Callable[[], None]:
    """Pass packets on for as long as this process lives, but for those with `mark` in them.

    The call that is returned lets the first of these go.
    """
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"reorder", _TUN_WITHOUT_HEADERS))
    for command in (f"addr add {HERE}/24 dev reorder", "link set reorder up", "link set lo up"):
        subprocess.run(["ip", *command.split()], check=True)
    held: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_pass_on, args=(device, mark, held), daemon=True).start()
    return lambda: _send(device, held.get())


def _pass_on(device: int, mark: bytes, held: "SimpleQueue[bytes]") -> None:
    while True:
        packet = os.read(device, 1 << 16)
        if mark in packet:
            held.put(packet)
        elif packet[0] >> 4 == 4:
            _send(device, packet)


def _send(device: int, packet: bytes) -> None:
    ends = packet[_DESTINATION:_BEHIND] + packet[_SOURCE:_DESTINATION]
    os.write(device, packet[:_SOURCE] + ends + packet[_BEHIND:])
