"""Engines under the conformance suite: how each is asked to run, and what its answers are held against.

An engine is run as a user runs it: `python -m harness backend=NAME` holds it for a whole suite, with requests so far
apart that the tests have it to themselves.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import orjson
import psutil
from hydra import compose, initialize_config_module

from backends.base import Backend, LaunchSpec
from backends.process import free_port
from backends.registry import make_backend
from harness.client.journal import Kind, read_journal
from harness.config import Config, register_schemas, typed
from tests.support.command_line import start
from tests.support.processes import command_of
from tests.support.waiting import wait_until

_SMALL = (
    "backend.dtype=f32",
    "backend.kv_dtype=f32",
    "backend.context_length=2048",
    "backend.max_running=8",
    "backend.prefill_chunk=64",
    "backend.kv_bytes=300000000",
)
# One request at once, the next ones so late that nobody waits for them.
_HELD = (
    "load=constant",
    "load.rate=0.001",
    "load.duration_s=20000",
    "load.warmup=0",
    "workload.requests=20",
    "workload.turns=1",
    "workload.prompt_tokens=64",
    "workload.output_tokens=4",
)
_SERVING_PARSER = "from backends.serving.__main__ import parser; parser().parse_args(sys.argv[1:])"


@dataclass(frozen=True)
class Subject:
    """An engine as the suite runs it.

    heavy: only where it is asked for by name. overrides: beside the small and exact ones of all.
    prefix_cache: as most tests run it. perplexity: relative tolerance of the reference one.
    tells_prefix_hits: its metrics do. kv_overhead: bytes that a token takes, over those of its keys and values.
    parser: Python that has the engine's own parser read sys.argv[1:], run in the engine's environment with `sys`
        imported. others: overrides of which each must make a launch line that this parser takes.
    """

    name: str
    parser: str = _SERVING_PARSER
    heavy: bool = False
    overrides: tuple[str, ...] = ()
    prefix_cache: bool = False
    perplexity: float = 0.005
    tells_prefix_hits: bool = False
    kv_overhead: float = 1.0
    others: tuple[tuple[str, ...], ...] = ((),)
    python: str | None = None

    def arguments(self, *more: str) -> list[str]:
        """Overrides of `python -m harness` that run this engine."""
        own = [f"backend={self.name}", *_SMALL, f"backend.prefix_cache={str(self.prefix_cache).lower()}"]
        own += [*self.overrides, *more]
        return [*own, f"backend.python={self.python}"] if self.python else own

    def config(self, *more: str) -> Config:
        """What these overrides compose to."""
        register_schemas()
        with initialize_config_module("conf", version_base="1.3"):
            return typed(compose("config", overrides=self.arguments(*more)))


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("openvino"),
        Subject(
            "onnxruntime",
            others=(
                (),
                ("backend.kv_dtype=int8", "backend.kv_scheme=int8_per_tensor", "backend.weight_dtype=int4"),
            ),
        ),
        Subject(
            "kvcompress",
            kv_overhead=1.049,  # a page is 32 slots of packed 8 bits, and holds 8 of these with a rest
            others=(
                (),
                ("backend.kv.evict=h2o", "backend.kv.budget.fraction=0.5", "backend.kv.quant=int4"),
                ("backend.kernel=torch", "backend.scheduler=dynamic", "backend.kv_dtype=bf16"),
            ),
        ),
        Subject(
            "vllm",
            heavy=True,
            prefix_cache=True,
            tells_prefix_hits=True,
            parser=(
                "from vllm.utils.argparse_utils import FlexibleArgumentParser as P; "
                "from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args as v; "
                "v(make_arg_parser(P()).parse_args(sys.argv[1:]))"
            ),
            others=(
                ("backend.dtype=bf16", "backend.kv_dtype=fp8", "backend.seed=3", "backend.eager=false"),
                ("backend.tensor_parallel=2", "backend.prefix_cache=false"),
                ("backend.extra_args=['--block-size=64']",),
            ),
        ),
        Subject(
            "sglang",
            heavy=True,
            prefix_cache=True,
            tells_prefix_hits=True,
            parser=(
                "import sglang_on_cpu; from sglang.srt.server_args import prepare_server_args; "
                "prepare_server_args(sys.argv[1:])"
            ),
            others=(
                ("backend.dtype=bf16", "backend.kv_dtype=bf16", "backend.seed=3"),
                ("backend.prefix_cache=false", "backend.kv_dtype=bf16", "backend.attention=intel_amx"),
                ("backend.extra_args=['--schedule-policy=lpm']",),
            ),
        ),
    )
}


def chosen(names: str | None, pythons: list[str]) -> list[Subject]:
    """The subjects of `--engines A,B` (None: every one that is not heavy), with `--engine-python NAME=PATH`."""
    wanted = [s.name for s in SUBJECTS.values() if not s.heavy] if names is None else names.split(",")
    own = dict(pair.split("=", 1) for pair in pythons)
    if unknown := [name for name in (*wanted, *own) if name not in SUBJECTS]:
        raise ValueError(f"--engines: {', '.join(unknown)} is unknown. Choose of {', '.join(SUBJECTS)}.")
    return [replace(SUBJECTS[name], python=own.get(name)) for name in wanted]


@dataclass
class Held:
    """A run of the harness that holds an engine: its process, and where the engine answers meanwhile."""

    subject: Subject
    process: subprocess.Popen[str]
    folder: Path
    config: Config
    backend: Backend
    base_url: str
    family: list[psutil.Process] = field(default_factory=list)

    @property
    def results(self) -> Path:
        """Where it records."""
        return self.folder / "results"

    def computing(self) -> psutil.Process:
        """The engine's process that holds the model: of those under the supervisor the largest."""
        (watcher,) = [p for p in self.family if any(word.endswith("supervisor.py") for word in command_of(p))]
        return max(watcher.children(recursive=True), key=lambda process: process.memory_info().rss)

    def must_run(self) -> None:
        """Fail with what the run said, where it has ended already."""
        if self.process.poll() is not None:
            out, err = self.process.communicate()
            raise AssertionError(f"The run ended before its time.\n{out}\n{err}")

    async def metrics(self, client: aiohttp.ClientSession) -> dict[str, float]:
        """The engine's own figures by their common names."""
        async with client.get("/metrics") as response:
            return self.backend.common_metrics(await response.text())


def answered(results: Path) -> bool:
    """Whether a measured request has ended; the journal is on disk a second later at most."""
    journals = (results / "runs").glob(".*/scratch/measured/measured.journal")
    return any(kind == Kind.END for journal in journals for kind, *_ in read_journal(journal))


@contextmanager
def starting(subject: Subject, folder: Path, *more: str) -> Iterator[Held]:
    """A run that starts the engine, as it is at once; ended with its engine whatever happens."""
    port = free_port()
    arguments = [f"backend.port={port}", *more]
    config = subject.config(*arguments)
    process = start(["harness", *subject.arguments(*_HELD, *arguments)], folder)
    held = Held(subject, process, folder, config, make_backend(config.backend), f"http://127.0.0.1:{port}")
    try:
        yield held
    finally:
        if process.poll() is None:
            process.terminate()  # handled like Ctrl-C
        process.communicate(timeout=120)  # closes its pipes, whether it was asked already or not


@contextmanager
def holding(subject: Subject, folder: Path, *more: str) -> Iterator[Held]:
    """The same once the engine has answered a measured request."""
    with starting(subject, folder, *more) as held:
        limit_s = held.config.backend.start_timeout_s + 60
        wait_until(
            lambda: answered(held.results) or held.process.poll() is not None, "the engine answers", limit_s
        )
        held.must_run()
        held.family = psutil.Process(held.process.pid).children(recursive=True)
        yield held


# Told on a descriptor of its own: engines print while they are imported.
_PARSE_ALL = """
import json, os, sys
asked, parser = json.loads(sys.stdin.read())
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in asked:
    sys.argv = ["engine", *line]
    try: exec(parser, {"sys": sys})
    except BaseException as error: print(json.dumps(f"{type(error).__name__}: {error}"), file=told)
    else: print(json.dumps(""), file=told)
"""


def refusals(subject: Subject, specs: Sequence[LaunchSpec]) -> list[str]:
    """What the engine's own parser says against the arguments of each launch line (those after `-m MODULE`).

    "" where it takes the line.
    """
    asked = [spec.argv[spec.argv.index("-m") + 2 :] for spec in specs]
    done = subprocess.run(
        [specs[0].argv[0], "-c", _PARSE_ALL],
        input=orjson.dumps([asked, subject.parser]).decode(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **specs[0].env},
        cwd="/",
    )
    found = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(specs), done.stderr
    return found
