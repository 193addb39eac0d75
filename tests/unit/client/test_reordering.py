"""A segment that overtook another was not there to be read when it came, whatever instant the kernel tells."""

import asyncio
import shutil
import socket
import subprocess
import sys
import time

import pytest

from harness.client.arrival_clock import stamping_began
from harness.client.receiver import Receiver
from harness.client.tcp_info import out_of_order
from tests.support.reordering_link import HERE, THERE, open_link

_NAMESPACES = ["unshare", "--map-root-user", "--net"]


def _allowed() -> bool:
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    return subprocess.run([*_NAMESPACES, "test", "-w", "/dev/net/tun"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _allowed(), reason="no network of one's own may be made here")
def test_bytes_behind_a_missing_segment_have_the_instant_at_which_it_came() -> None:
    told = subprocess.run([*_NAMESPACES, sys.executable, "-m", __name__], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


class _Heard:
    def __init__(self) -> None:
        self.data = b""
        self.ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing to do."""

    def arrived(self, data: memoryview, ns: int) -> None:
        self.data += data
        self.ns = ns

    def eof_received(self) -> None:
        """Nothing to do."""

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing to do."""


async def _overtaken() -> None:
    let_go = open_link(b"late")
    with socket.create_server((HERE, 9)) as listening:
        client = socket.create_connection((THERE, 9))
        server, _ = listening.accept()
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setblocking(False)
    receiver, heard = Receiver(asyncio.get_running_loop()), _Heard()
    transport = receiver.attach(client, heard)
    assert await stamping_began(20)
    server.sendall(b"late")
    server.sendall(b"early")
    async with asyncio.timeout(20):
        while not out_of_order(client):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)  # longer than a pause
        gone_ns = time.monotonic_ns()
        let_go()
        while len(heard.data) < len(b"lateearly"):
            await asyncio.sleep(0.001)
    assert heard.data == b"lateearly"
    assert heard.ns >= gone_ns
    assert receiver.by_process == 1
    transport.abort()
    await asyncio.sleep(0)
    receiver.close()
    server.close()


if __name__ == "__main__":
    asyncio.run(_overtaken())
