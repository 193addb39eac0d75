"""The other side of serving_overhead.py: OpenVINO's pipeline driven without a server, in the engine's environment.

Loads what `backends.serving` would load, by the same arguments; then answers lines on standard input, each a JSON
object {"prompts": [[id, …], …], "tokens": N}, with one line {"first_s", "last_s", "ids"}: seconds from before the
first request was added to the first and the last token read, and the ids of each answer.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
import orjson

from backends.openvino.engine import load
from backends.serving.engine import EngineConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--options", type=orjson.loads, required=True)
    arguments, _ = parser.parse_known_args()
    engine: Any = load(EngineConfig.from_options(arguments.model, (), arguments.options))
    pipeline = engine._pipeline
    tell({"ready": True})
    for line in sys.stdin:
        asked = orjson.loads(line)
        tell(answer(pipeline, asked["prompts"], asked["tokens"]))


def answer(pipeline: Any, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
    """Generate `tokens` greedily for each prompt, all added at once."""
    wanted = genai.GenerationConfig()
    wanted.max_new_tokens = tokens
    wanted.ignore_eos = True
    started = time.perf_counter()
    handles = [
        pipeline.add_request(number, openvino.Tensor(np.array([ids], dtype=np.int64)), wanted)
        for number, ids in enumerate(prompts)
    ]
    answers: list[list[int]] = [[] for _ in prompts]
    first = last = 0.0
    while pipeline.has_non_finished_requests():
        pipeline.step()
        for ids, handle in zip(answers, handles, strict=True):
            while handle.can_read():
                for output in handle.read().values():
                    ids.extend(output.generated_ids)
                last = time.perf_counter() - started
                first = first or last
    return {"first_s": first, "last_s": last, "ids": answers}


def tell(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
