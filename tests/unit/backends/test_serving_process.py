"""The serving room lives in the engine's environment: what it may import, and how its two processes talk."""

import socket
import subprocess
import sys

import pytest

from backends.serving.engine import Sampling
from backends.serving.messages import Add, Cancel, CommandSocket, frame

_FORBIDDEN = (
    "hydra",
    "omegaconf",
    "pandas",
    "numpy",
    "pyarrow",
    "matplotlib",
    "scipy",
    "openvino",
    "backends.base",
)
_SAMPLING = Sampling(1, 0, True, 0.0, 1.0, 0, False, False)


@pytest.mark.parametrize(
    "module", ["backends.serving.__main__", "backends.serving.app", "backends.serving.worker"]
)
def test_it_imports_neither_configuration_nor_tables(module: str) -> None:
    program = f"import sys, {module}; print([m for m in {_FORBIDDEN} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_harness_side_imports_no_engine_and_no_server() -> None:
    program = (
        "import sys, backends.openvino.adapter, backends.endpoint, backends.process;"
        "print([m for m in ('openvino', 'openvino_genai', 'aiohttp', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_arrive_whole_and_in_order_however_they_were_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        commands = CommandSocket(theirs)
        assert commands.receive(wait=False) == []
        sent: list[Add | Cancel] = [Add(number, list(range(300)), _SAMPLING) for number in range(3)]
        sent.append(Cancel(1))
        stream = b"".join(frame(command) for command in sent)
        got: list[Add | Cancel] = []
        for start in range(0, len(stream), 7):
            ours.sendall(stream[start : start + 7])
            got += commands.receive(wait=False)
        assert got == sent
        ours.close()
        with pytest.raises(EOFError):
            commands.receive(wait=True)
