"""The scripted server as a process of its own, with a handle on it."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.scripts import Script

_ROOT = Path(__file__).parents[2]


class ScriptedServer:
    """A running scripted server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, scheme: str) -> None:
        self.process = process
        self.port = port
        self.base_url = f"{scheme}://127.0.0.1:{port}"

    def play(
        self,
        default: Script | None = None,
        by_key: Mapping[str | int, Script] | None = None,
        in_order: Sequence[Script] = (),
    ) -> None:
        """Forget the record and set scripts: by key (first prompt id, last message), else in order, else default."""
        message: dict[str, Any] = {
            "default": (default or Script()).to_json(),
            "by_key": {str(key): script.to_json() for key, script in (by_key or {}).items()},
            "in_order": [script.to_json() for script in in_order],
        }
        self._call("/scripted/scripts", json.dumps(message).encode())

    def record(self) -> list[dict[str, Any]]:
        """What it saw, by arrival: key, received_ns, headers_ns, sends (ns of each token event), tokens, body."""
        return list(self._call("/scripted/record")["requests"])

    def connections(self) -> int:
        """How many connections it has ever accepted (one more for this call)."""
        return int(self._call("/scripted/record")["connections"])

    def kill(self) -> None:
        """End it without a goodbye."""
        self.process.kill()
        self.process.wait()

    def _call(self, path: str, body: bytes | None = None) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", body, timeout=10) as answer:
            return json.loads(answer.read())


@contextmanager
def scripted_server(*options: str, certificate: Path | None = None) -> Iterator[ScriptedServer]:
    """Start a scripted server on a free port; it is gone afterwards."""
    more = ["--certificate", str(certificate)] if certificate else []
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.scripted_server", "--port", "0", "--leash", *options, *more],
        stdin=subprocess.PIPE,  # its end of file, should this process be killed, ends the server
        stdout=subprocess.PIPE,
        cwd=_ROOT,
    )
    try:
        if process.stdout is None:
            raise RuntimeError("no standard output")
        line = process.stdout.readline().decode()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the scripted server did not start: {line!r}")
        yield ScriptedServer(process, int(line.split()[-1]), "https" if certificate else "http")
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
