"""The serving room lives in the engine's environment: what it may import, and how its two processes talk."""

import socket
import subprocess
import sys
import threading

import pytest

from backends.serving.engine import RequestOutput, Sampling
from backends.serving.messages import Add, Cancel, CommandSocket, Frames, Outputs, Ready, Report, frame
from backends.serving.worker import serve

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
        assert commands.receive(0) == []
        sent: list[Add | Cancel] = [Add(number, list(range(300)), _SAMPLING) for number in range(3)]
        sent.append(Cancel(1))
        stream = b"".join(frame(command) for command in sent)
        got: list[Add | Cancel] = []
        for start in range(0, len(stream), 7):
            ours.sendall(stream[start : start + 7])
            got += commands.receive(0)
        assert got == sent
        ours.close()
        with pytest.raises(EOFError):
            commands.receive(None)


class _Counting:
    """An engine that answers request n, whose prompt must not be empty, with the tokens n, n + 1, … of its length."""

    capacity_tokens = 100

    def __init__(self) -> None:
        self.left: dict[int, int] = {}

    def add(self, request_id: int, ids: list[int], sampling: Sampling) -> None:
        if not ids:
            raise ValueError("nothing to answer")
        self.left[request_id] = sampling.max_tokens

    def cancel(self, request_id: int) -> None:
        self.left.pop(request_id, None)

    def has_work(self) -> bool:
        return bool(self.left)

    def step(self) -> list[RequestOutput]:
        self.left = {number: left - 1 for number, left in self.left.items()}
        told = [RequestOutput(n, (n,), finish=None if left else "length") for n, left in self.left.items()]
        self.left = {number: left for number, left in self.left.items() if left}
        return told

    def gauges(self) -> dict[str, float]:
        return {"running": len(self.left)}

    def close(self) -> None:
        pass


def test_requests_that_come_together_are_computed_together_and_each_step_is_one_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = [Add(1, [5], _sampling(2)), Add(2, [], _sampling(1)), Add(3, [5], _sampling(3)), Cancel(4)]
        ours.sendall(b"".join(map(frame, sent)))
        working = threading.Thread(target=serve, args=(_Counting(), CommandSocket(theirs)))
        working.start()
        frames, reports = Frames(), list[Report]()
        while len(reports) < 4:
            reports += frames.feed(ours.recv(7))
        ours.shutdown(socket.SHUT_WR)
        working.join()
        assert reports == [
            Ready(100, {"running": 0}),
            Outputs(
                [RequestOutput(2, error="nothing to answer"), RequestOutput(1, (1,)), RequestOutput(3, (3,))],
                {"running": 2},
            ),
            Outputs([RequestOutput(1, (1,), finish="length"), RequestOutput(3, (3,))], {"running": 1}),
            Outputs([RequestOutput(3, (3,), finish="length")], {"running": 0}),
        ]


def _sampling(tokens: int) -> Sampling:
    return Sampling(tokens, 0, True, 0.0, 1.0, 0, False, False)
