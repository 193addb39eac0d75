"""What `backends.serving` costs: OpenVINO through the server against its pipeline driven directly, same tokens.

    python benchmarks/serving_overhead.py [--check] [backend.KEY=VALUE …]

Both are loaded, on the cores a run would give the engine; this process keeps to the client's. They answer every 8
requests at once, and every request that is alone, one right after the other (the order alternates), so that
whatever else the machine does meets both. Printed are medians, and what the server costs as the median over these
pairs with its 95 % interval (bootstrap, percentiles): of output tokens per second at 8 concurrent requests, and of
time to first token at one. --check exits 1 where that median is more than 5 % of the one or 5 ms of the other. The
CPU time of each process per token at 8 says where the loss comes from; other work on the machine spoils it less
than the times.
"""

import argparse
import http.client
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
import psutil
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from scipy.stats import bootstrap

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.base import LaunchSpec
from backends.process import EngineProcess, free_port, wait_ready
from backends.registry import make_backend
from harness.config import register_schemas
from harness.core.model_store import ModelSource, resolve
from harness.cores import available_cores, share_cores

CONCURRENT, PROMPT_TOKENS, OUTPUT_TOKENS = 8, 32, 32
ALONE = 8  # requests a round that have the engine to themselves
LARGEST_LOSS, LARGEST_DELAY_S = 0.05, 0.005


@dataclass
class Times:
    """Seconds of one side: to the last token of all, and to the first token of one that is alone.

    cpu: of each process, while it answered all, in all rounds together (the system counts in hundredths).
    """

    eight: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def throughput(self) -> float:
        """Output tokens per second at CONCURRENT requests."""
        return CONCURRENT * OUTPUT_TOKENS / statistics.median(self.eight)

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token of a request that is alone."""
        return statistics.median(self.first)

    @property
    def cpu_words(self) -> str:
        """CPU time of each process per output token."""
        tokens = len(self.eight) * CONCURRENT * OUTPUT_TOKENS
        return " + ".join(f"{seconds / tokens * 1e6:.0f} µs ({name})" for name, seconds in self.cpu.items())


class Side(Protocol):
    """One way to the same pipeline, through these processes."""

    processes: dict[str, psutil.Process]

    def ask(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """Answer all prompts at once: first_s, last_s and ids, as benchmarks/direct_openvino.py tells them."""
        ...


class Direct:
    """The pipeline in a process of its own, asked over its standard input."""

    def __init__(self, spec: LaunchSpec, cores: tuple[int, ...] | None) -> None:
        script = Path(__file__).with_name("direct_openvino.py")
        arguments = spec.argv[spec.argv.index("backends.serving") + 1 :]
        self._process = subprocess.Popen(
            [spec.argv[0], "-P", str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **spec.env},
            preexec_fn=lambda: os.sched_setaffinity(0, cores) if cores else None,
        )
        self.processes = {"engine": psutil.Process(self._process.pid)}
        self._read()

    def ask(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """See `Side`."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps({"prompts": prompts, "tokens": tokens}) + b"\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        message: dict[str, Any] = orjson.loads(self._process.stdout.readline())
        return message

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


class Served:
    """The server, whose HTTP process has this pid, asked over a connection for each request."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        http_side = psutil.Process(pid)
        self.processes = {"engine": http_side.children()[0], "HTTP": http_side}

    def ask(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """See `Side`."""
        answers: list[list[int]] = [[] for _ in prompts]
        instants: list[float] = []
        connections = [http.client.HTTPConnection("127.0.0.1", self._port) for _ in prompts]
        for connection in connections:
            connection.connect()
        started = time.perf_counter()
        threads = [
            threading.Thread(target=self._one, args=(connection, prompt, tokens, answer, instants))
            for connection, prompt, answer in zip(connections, prompts, answers, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"first_s": min(instants) - started, "last_s": max(instants) - started, "ids": answers}

    @staticmethod
    def _one(
        connection: http.client.HTTPConnection,
        prompt: list[int],
        tokens: int,
        answer: list[int],
        instants: list[float],
    ) -> None:
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        body |= {"stream": True, "return_token_ids": True}
        connection.request("POST", "/v1/completions", orjson.dumps(body))
        lines = []
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                instants.append(time.perf_counter())
                lines.append(line)
        for line in lines:
            answer.extend(orjson.loads(line[6:])["choices"][0]["token_ids"])
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="exit 1 where the server costs more than allowed"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("overrides", nargs="*", help="such as backend.dtype=bf16")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds: an interval takes at least 2")

    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        overrides = [
            "backend=openvino",
            "backend.kv_dtype=f32",
            "backend.max_running=8",
            *arguments.overrides,
        ]
        config = compose("config", [*overrides, "model=smollm2-135m"])
    options: Any = OmegaConf.to_object(config.backend)
    model = resolve(ModelSource(**OmegaConf.to_container(config.model)))  # type: ignore[arg-type]
    backend = make_backend(options)
    backend.check(model)
    backend.prepare(model, lambda line: print(line, file=sys.stderr))
    cores = share_cores(available_cores(), pin=True)
    port = free_port()
    spec = backend.launch(model, port, cores.engine_threads())
    if spec is None:
        parser.error("this backend is not started here")
    if cores.client:
        os.sched_setaffinity(0, cores.client)
    with (
        tempfile.TemporaryDirectory() as folder,
        EngineProcess.start(spec, Path(folder) / "log", cores.engine) as process,
        closing(Direct(spec, cores.engine)) as direct,
    ):
        wait_ready(backend.endpoint(model, port), backend, process, 180)
        found = _measure({"direct": direct, "served": Served(port, process.pid)}, arguments.rounds)
    return _report(found["direct"], found["served"], arguments.check)


def _measure(sides: dict[str, Side], rounds: int) -> dict[str, Times]:
    """Both sides in turn; a first round warms up and is not counted. Their tokens must be equal."""
    found = {name: Times() for name in sides}
    chance = random.Random(0)
    for number in range(rounds + 1):
        prompts = [[chance.randrange(1000, 40000) for _ in range(PROMPT_TOKENS)] for _ in range(CONCURRENT)]
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        eight, used = {}, {}
        for name in _in_turn(sides, number):
            before = _cpu_s(sides[name])
            eight[name] = sides[name].ask(prompts, OUTPUT_TOKENS)
            used[name] = {process: s - before[process] for process, s in _cpu_s(sides[name]).items()}
        alone = [
            {name: sides[name].ask([prompt], 2) for name in _in_turn(sides, number + place)}
            for place, prompt in enumerate(prompts[:ALONE])
        ]
        for pair in (eight, *alone):
            if pair["direct"]["ids"] != pair["served"]["ids"]:
                raise SystemExit("The two sides generated different tokens: their times cannot be compared.")
        for name in sides if number else ():
            for process, seconds in used[name].items():
                found[name].cpu[process] = found[name].cpu.get(process, 0.0) + seconds
            found[name].eight.append(eight[name]["last_s"])
            found[name].first += [answers[name]["first_s"] for answers in alone]
    return found


def _in_turn(sides: dict[str, Side], number: int) -> list[str]:
    return list(sides) if number % 2 else list(reversed(sides))


def _cpu_s(side: Side) -> dict[str, float]:
    times = {name: process.cpu_times() for name, process in side.processes.items()}
    return {name: used.user + used.system for name, used in times.items()}


def _report(direct: Times, served: Times, check: bool) -> int:
    losses = 1 - np.array(direct.eight) / np.array(
        served.eight
    )  # of throughput, which is the same tokens a second
    delays_s = np.array(served.first) - np.array(direct.first)
    loss, delay_s = float(np.median(losses)), float(np.median(delays_s))
    lowest, highest = _interval(losses)
    print(
        f"output tokens/s at {CONCURRENT}: direct {direct.throughput:.1f}, served {served.throughput:.1f}, "
        f"lost {loss:.1%} [{lowest:.1%}, {highest:.1%}] (at most {LARGEST_LOSS:.0%})"
    )
    soonest, latest = _interval(delays_s * 1000)
    print(
        f"TTFT at one: direct {direct.ttft_s * 1000:.1f} ms, served {served.ttft_s * 1000:.1f} ms, "
        f"{delay_s * 1000:+.1f} ms [{soonest:+.1f}, {latest:+.1f}] (at most {LARGEST_DELAY_S * 1000:.0f})"
    )
    print(f"CPU per output token: direct {direct.cpu_words}, served {served.cpu_words}")
    return int(check and (loss > LARGEST_LOSS or delay_s > LARGEST_DELAY_S))


def _interval(pairs: np.ndarray) -> tuple[float, float]:
    """95 % of the median over pairs."""
    found = bootstrap((pairs,), np.median, method="percentile", rng=np.random.default_rng(0))
    return found.confidence_interval.low, found.confidence_interval.high


if __name__ == "__main__":
    sys.exit(main())
