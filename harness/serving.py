"""An engine that answers for as long as a `with` block lasts, whoever runs it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.base import Backend, Endpoint, LaunchSpec
from backends.process import EngineProcess, free_port, wait_ready
from harness.core.model_store import ModelFiles
from harness.cores import CoreShares


@dataclass(frozen=True, slots=True)
class Server:
    """Where it answers, and the process behind it (None where somebody else runs it).

    launch: the command line as a shell would take it, the variables that were set for it first.
    """

    endpoint: Endpoint
    process: EngineProcess | None
    launch: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """False once an engine that the harness started has ended."""
        return self.process is None or self.process.alive()


@contextmanager
def serve(
    backend: Backend,
    model: ModelFiles,
    cores: CoreShares,
    log: Path,
    starting: AbstractContextManager[object],
) -> Iterator[Server]:
    """Start the engine if it is ours to start, wait until it answers a token, end it whatever happens.

    `starting` surrounds the wait alone (the screen's phase). Raises EngineError with the engine's own last words
    where it does not come up.
    """
    options = backend.options
    port = free_port(options.port if options.base_url is None else None)
    spec = backend.launch(model, port, options.threads or cores.engine_threads())
    endpoint = backend.endpoint(model, port)
    with ExitStack() as engine:
        process = engine.enter_context(EngineProcess.start(spec, log, cores.engine)) if spec else None
        with starting:
            wait_ready(endpoint, backend, process, options.start_timeout_s)
        yield Server(endpoint, process, _line(spec) if spec else ())


def _line(spec: LaunchSpec) -> tuple[str, ...]:
    return (*(f"{name}={value}" for name, value in sorted(spec.env.items())), *spec.argv)
