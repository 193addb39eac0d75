"""How long `/health` takes while a 4k prompt is being prefilled: `python benchmarks/serving_health.py [--check MS]`.

The engine's steps take hundreds of milliseconds and hold their interpreter's lock; the HTTP process must answer all
the same. Prints the median and the longest of all answers between the request and its first token.
"""

import argparse
import http.client
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import orjson
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.process import EngineProcess, free_port, wait_ready
from backends.registry import make_backend
from harness.config import register_schemas
from harness.core.model_store import ModelSource, resolve

PROMPT_TOKENS = 4000
PAUSE_S = 0.005


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=float, metavar="MS", help="exit 1 where the longest answer took more")
    parser.add_argument("overrides", nargs="*", help="such as backend.prefill_chunk=64")
    arguments = parser.parse_args()

    register_schemas()
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", ["backend=openvino", "model=smollm2-135m", *arguments.overrides])
    options = OmegaConf.to_object(config.backend)
    model = resolve(ModelSource(**OmegaConf.to_container(config.model)))  # type: ignore[arg-type]
    backend = make_backend(options)  # type: ignore[arg-type]
    backend.check(model)
    port = free_port()
    spec = backend.launch(model, port, threads=2)
    if spec is None:
        parser.error("this backend is not started here")
    with tempfile.TemporaryDirectory() as folder, EngineProcess.start(spec, Path(folder) / "log") as process:
        wait_ready(backend.endpoint(model, port), backend, process, 120)
        answers = _measure(port)
    longest = max(answers)
    print(f"prefill of {PROMPT_TOKENS} tokens: {len(answers)} answers of /health, ", end="")
    print(f"median {statistics.median(answers):.1f} ms, longest {longest:.1f} ms")
    return int(arguments.check is not None and longest > arguments.check)


def _measure(port: int) -> list[float]:
    """Milliseconds of each answer of /health until the long prompt's first token."""
    first = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        body = {"prompt": [500] * PROMPT_TOKENS, "max_tokens": 1, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", orjson.dumps(body))
        connection.getresponse().readline()
        first.set()

    asking = threading.Thread(target=ask)
    asking.start()
    answers = []
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not first.is_set():
        started = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        answers.append((time.perf_counter() - started) * 1000)
        time.sleep(PAUSE_S)
    asking.join()
    return answers


if __name__ == "__main__":
    sys.exit(main())
