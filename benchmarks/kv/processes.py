"""Starts and calls the process of an implementation (`worker.py`)."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.core.errors import HarnessError

_WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """A `Driver` in another process: `call("open", prompts=…, setting=…)`.

    Raises HarnessError for what fails there.
    """

    def __init__(self, name: str, python: Path, model: Path, threads: int, log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("a") as words:
            self._process = subprocess.Popen(
                [str(python), str(_WORKER), name, str(model), str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )

    def call(self, method: str, **args: Any) -> Any:
        """What the method returns."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"call": method, "args": args}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise HarnessError(f"{self.name} ended during {method}; {self._log} has its words.")
        answer = json.loads(line)
        if "error" in answer:
            raise HarnessError(f"{self.name}, {method}: {answer['error']}")
        return answer["result"]

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
