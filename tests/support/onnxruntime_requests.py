"""A program for an engine's own environment: requests through an `Engine`, told as JSON on standard output.

Arguments: genai-cpu, genai-cuda or bound; the exported model; a JSON file of prompts' ids. It ends with 1 and the
words of an EngineError on standard error where the engine cannot be had.
"""

import json
import sys
from pathlib import Path

from backends.serving.engine import Engine, EngineConfig, RequestOutput, Sampling
from harness.core.errors import EngineError
from harness.core.metric_names import KV_RESERVED_BYTES, KV_USED_BYTES, REQUESTS_RUNNING

_TOKEN = 2 * 30 * 3 * 64 * 4  # bytes of a token's f32 keys and values of the default model
_POOL = 1400 * _TOKEN
_CANCELLED = 99


def _engine(kind: str, model: Path) -> Engine:
    device = "cuda" if kind == "genai-cuda" else "cpu"
    config = EngineConfig(model, (2,), device, "f32", "f32", 1400, 4, _POOL, False, 64, 2, 0)
    if kind == "bound":
        from backends.onnxruntime.engine import load

        return load(config)
    from backends.onnxruntime.genai_engine import GenaiEngine

    return GenaiEngine(config, device)


def _sampling(max_tokens: int, **changes: object) -> Sampling:
    plain = {"min_tokens": 0, "ignore_eos": True, "temperature": 0.0, "top_p": 1.0, "seed": 0}
    plain |= {"logprobs": True, "prompt_logprobs": False, "max_tokens": max_tokens}
    return Sampling(**{**plain, **changes})  # type: ignore[arg-type]


def _drained(engine: Engine) -> list[RequestOutput]:
    found = []
    while engine.has_work():
        found += engine.step()
    return found


def _tokens(outputs: list[RequestOutput], number: int) -> list[int]:
    return [token for output in outputs if output.request_id == number for token in output.token_ids]


def main(kind: str, model: str, plan: str) -> int:
    """Requests alone; but for `bound` also staggered beside one that is given up, then a prompt's own."""
    try:
        engine = _engine(kind, Path(model))
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    asked = json.loads(Path(plan).read_text())
    prompts = asked["prompts"]
    alone, logprobs, seen, outputs = [], [], [], []
    for number, ids in enumerate(prompts):
        engine.add(number, ids, _sampling(12 + number))
        mine = _drained(engine)
        alone.append(_tokens(mine, number))
        logprobs.append([value for output in mine for value in output.logprobs or ()])
    if kind == "bound":
        print(json.dumps({"alone": alone, "logprobs": logprobs}))
        return 0
    waiting = list(enumerate(prompts))
    step = 0
    while waiting or engine.has_work():
        if waiting and step % 2 == 0:
            number, ids = waiting.pop(0)
            engine.add(number, ids, _sampling(12 + number))
        if step == 1:
            engine.add(_CANCELLED, prompts[0], _sampling(1200))
        if step == 7:
            engine.cancel(_CANCELLED)
        outputs += engine.step()
        gauges = engine.gauges()
        seen.append([gauges[name] for name in (REQUESTS_RUNNING, KV_USED_BYTES, KV_RESERVED_BYTES)])
        step += 1
    left = engine.gauges()
    engine.add(0, asked["text"], _sampling(0, prompt_logprobs=True))
    (prompt,) = [output.prompt_logprobs for output in _drained(engine) if output.prompt_logprobs]
    told = {
        "alone": alone,
        "logprobs": logprobs,
        "staggered": [_tokens(outputs, number) for number in range(len(prompts))],
        "given_up": len(_tokens(outputs, _CANCELLED)),
        "order": [output.request_id for output in outputs if output.finish],
        "seen": seen,
        "left": left,
        "pool": _POOL,
        "prompt": prompt,
    }
    engine.close()
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
