"""The harness's side of an engine process: start it under the supervisor, wait until it answers, end it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from backends import supervisor
from backends.base import Backend, Endpoint, LaunchSpec
from backends.http_calls import Unreachable, post_json, server_words
from backends.last_words import last_words
from harness.core.errors import EndpointError, EngineError, UsageError

_STOP_TIMEOUT_S = supervisor.GRACE_S + 10
_PAUSE_S = 0.2  # between two attempts to get a first token
_WORDS_LIMIT = 131_072  # bytes read from the end of a log


class EngineProcess:
    """A running engine and everything it started, as one thing that can be ended.

    pid: process id of the engine itself, the root of its tree. log_path: holds its whole output.
    """

    def __init__(
        self, watcher: subprocess.Popen[bytes], control: socket.socket, pid: int, log_path: Path
    ) -> None:
        self._watcher = watcher
        self._control = control
        self.pid = pid
        self.log_path = log_path

    @classmethod
    def start(cls, spec: LaunchSpec, log_path: Path, cpus: Sequence[int] | None = None) -> "EngineProcess":
        """Start `spec`, its output going to `log_path`, on the cores `cpus` (None: those of the harness).

        Raises EngineError where the command cannot be executed at all.
        """
        ours, theirs = socket.socketpair()
        # By path and isolated: it must start at once, whatever the environment and the working folder hold.
        command = [
            sys.executable,
            "-I",
            "-S",
            str(Path(supervisor.__file__)),
            "--control",
            str(theirs.fileno()),
        ]
        if cpus:
            command += ["--cpus", ",".join(str(cpu) for cpu in cpus)]
        with theirs, log_path.open("ab") as log:
            watcher = subprocess.Popen(
                [*command, "--", *spec.argv],
                env={**os.environ, **spec.env},
                cwd=spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the harness alone, which then ends this
            )
        with ours.makefile("r") as lines:
            word, _, rest = lines.readline().strip().partition(" ")
        if word != "pid":
            ours.close()
            watcher.wait()
            reason = rest or _tail(log_path, 3) or "its supervisor did not start"
            raise EngineError(f"The engine could not be started: {reason}. Check backend.python.")
        return cls(watcher, ours, int(rest), log_path)

    def alive(self) -> bool:
        """Whether the engine still runs."""
        return self._watcher.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The engine's exit status once it has ended (128 + n after signal n)."""
        return self._watcher.poll()

    def last_words(self, lines: int = 15) -> str:
        """The last lines of the engine's output that say something; see `backends.last_words`."""
        return _tail(self.log_path, lines)

    def stop(self) -> None:
        """End the engine and all its descendants; returns when they are gone. Again: does nothing."""
        self._control.close()
        try:
            self._watcher.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Something survives SIGKILL (a process stuck in a driver): no more can be done for it from here.
            self._watcher.kill()
            self._watcher.wait()

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _tail(path: Path, lines: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _WORDS_LIMIT))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return last_words(text, lines)


def free_port(wanted: int | None = None) -> int:
    """A loopback port nobody listens on; `wanted` itself where it is given.

    Raises UsageError where `wanted` is in use.
    """
    with socket.socket() as probe:
        # As servers do it, so that connections of a server that just ended do not count as "in use".
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError as error:
            raise UsageError(
                f"Port {wanted} cannot be used ({error.strerror}). Choose another backend.port, or "
                "backend.port=null for a free one."
            ) from error
        return int(probe.getsockname()[1])


def wait_ready(
    endpoint: Endpoint,
    backend: Backend,
    process: EngineProcess | None,
    timeout_s: float,
    on_wait: Callable[[float], None] | None = None,
) -> None:
    """Return once the server has answered a real completion of one token.

    process: the engine that was started, or None where somebody else runs the server. on_wait: called with
    the seconds waited so far before every new attempt. Raises EngineError with the engine's own last words
    where it dies or does not answer in time, EndpointError where a server of somebody else refuses.
    """
    chat = backend.options.api == "chat"
    path = "/v1/chat/completions" if chat else "/v1/completions"
    question = {"messages": [{"role": "user", "content": "Hello"}]} if chat else {"prompt": "Hello"}
    body = {"model": endpoint.model_name, **question, "max_tokens": 1, "temperature": 0}
    started = time.monotonic()
    while True:
        waited = time.monotonic() - started
        if process is not None and not process.alive():
            raise EngineError(
                f"The engine ended while starting (status {process.exit_status}).{_words(process)}"
            )
        try:
            patience_s = max(1.0, timeout_s - waited)
            reply = post_json(endpoint.base_url + path, body, endpoint.headers, patience_s, endpoint.trust)
        except Unreachable as error:
            if process is None:
                raise EndpointError(
                    f"No server answers at {endpoint.base_url} ({error}). Start it, or correct "
                    "backend.base_url."
                ) from error
            answer = str(error)
        else:
            if reply.status == 200:
                if process is None or process.alive():
                    return
                continue  # somebody else's server on the same port answered
            answer = f"HTTP {reply.status}: {server_words(reply)}"
            if process is None or reply.status not in (429, 502, 503):
                _refuse(endpoint, process, reply.status, answer)
        if waited > timeout_s:
            if process is None:
                raise EndpointError(f"{endpoint.base_url} gave no token within {timeout_s:g} s ({answer}).")
            raise EngineError(
                f"The engine gave no token within backend.start_timeout_s={timeout_s:g} ({answer})."
                f"{_words(process)}"
            )
        if on_wait is not None:
            on_wait(waited)
        time.sleep(_PAUSE_S)


def _words(process: EngineProcess) -> str:
    words = process.last_words()
    return f" Its last words:\n{words}" if words else " It said nothing."


def _refuse(endpoint: Endpoint, process: EngineProcess | None, status: int, answer: str) -> None:
    if process is not None:
        raise EngineError(f"The engine refuses a completion of one token. {answer}{_words(process)}")
    cures = {
        401: "Put the key into the environment variable that backend.api_key_env names.",
        403: "The key may not use this model; check it, or backend.model_name.",
        404: f"Check backend.base_url, backend.api, and backend.model_name={endpoint.model_name}.",
        429: "The server is limiting requests; try again later.",
    }
    cure = cures.get(status, "Try the same request with another client, such as curl.")
    raise EndpointError(f"{endpoint.base_url} refuses a completion of one token. {answer} {cure}")
