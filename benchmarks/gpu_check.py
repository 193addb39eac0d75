"""Is kvcompress right and fast on this NVIDIA GPU?  python benchmarks/gpu_check.py [--check]

Needs no model and no network: weights are random. First a tiny model is run on the CPU and on the GPU, both in
float32, through the same policies and formats, and once more in bfloat16; then decoding is timed in the shape of a 7B
model (Mistral's) in bfloat16, beside the time that the GPU takes to read its weights once. Some minutes, 18 GB of GPU
memory or, for the largest batch, 30. --check exits with 1 where a result differs by more than it may.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.kvcompress.model.config import DecoderConfig
from backends.kvcompress.model.weights import compute_dtype
from benchmarks.kv.random_decoder import TINY, Run, random_decoder, spec_of

SHAPE_7B = replace(
    TINY, hidden=4096, inner=14_336, layers=32, heads=32, kv_heads=8, head_dim=128, vocabulary=32_000,
    context_length=8192,
)  # fmt: skip
# Settings, and how far the logits may be from the CPU's (relative L2): rounding may choose another slot or code.
SETTINGS = (
    ("", 1e-3),
    ("quant=int8", 1e-2),
    ("quant=fp8", 1e-2),
    ("quant=int4 granularity=kivi", 1e-2),
    ("quant=int3 codebook=true rotate=true", 1e-2),
    ("evict=streaming_llm budget.fraction=0.5", 1e-3),
    ("evict=streaming_llm budget.fraction=0.5 reindex=true", 1e-3),
    ("evict=h2o budget.fraction=0.5", 1e-2),
    ("evict=snapkv budget.fraction=0.5 spread=adakv", 1e-2),
    ("evict=lagkv budget.tokens=64 quant=int4", 1e-2),
)
_BFLOAT16 = 5e-2
_PROMPT, _ANSWER, _CHUNK = 200, 24, 64
_CONTEXT, _STEPS, _WARM_UP = 2048, 12, 3
_BATCHES = (1, 8, 32)
_WORK_BYTES = 3e9


def main() -> int:
    parser = argparse.ArgumentParser(description="Is kvcompress right and fast on this NVIDIA GPU?")
    parser.add_argument("--check", action="store_true", help="exit 1 where a result differs too much")
    check = parser.parse_args().check
    if not torch.cuda.is_available():
        print("There is no NVIDIA GPU that this PyTorch can use: run it where there is one.", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}\n")
    missed = False
    for words, differs, most in differences(device):
        missed |= not differs <= most
        print(f"{words:55} differs by {differs:.1e} from the CPU (at most {most:.0e})")
    print(f"\nDecoding at {_CONTEXT} tokens of context, 7B shape, bfloat16")
    for line in speeds(device, SHAPE_7B, torch.cuda.mem_get_info(device)[0]):
        print(line)
    return 1 if check and missed else 0


def differences(device: torch.device) -> Iterator[tuple[str, float, float]]:
    """(setting, relative L2 difference of the logits between `device` and the CPU, how much it may be)."""
    ids = torch.randint(TINY.vocabulary, (_PROMPT + _ANSWER,), generator=torch.Generator().manual_seed(1))
    cpu = random_decoder(TINY, torch.device("cpu"), torch.float32)
    cases = {torch.float32: SETTINGS, compute_dtype(device): (("", _BFLOAT16),)}
    for dtype, settings in {**cases, torch.float32: SETTINGS}.items():
        model = random_decoder(TINY, device, dtype)
        for words, most in settings:
            spec = spec_of(words)
            expected = Run(cpu, torch.float32).logits(spec, ids, _PROMPT, _CHUNK)
            found = Run(model, dtype).logits(spec, ids, _PROMPT, _CHUNK)
            name = f"{words or 'everything kept'}, {str(dtype).removeprefix('torch.')}"
            yield name, float((found - expected).norm() / expected.norm()), most


def speeds(device: torch.device, shape: DecoderConfig, free_bytes: float) -> Iterator[str]:
    """A line for each batch and setting: seconds of a step, tokens/s, memory held."""
    free_bytes -= _WORK_BYTES
    if free_bytes < 2 * shape_weights(shape):
        yield f"not measured: the weights alone are {2 * shape_weights(shape) / 1e9:.1f} GB, too much for this GPU"
        return
    model = random_decoder(shape, device, compute_dtype(device))
    free_bytes -= 2 * shape_weights(shape)
    seconds = 2 * shape_weights(shape) * _reading_seconds(device)
    yield f"weights {2 * shape_weights(shape) / 1e9:.1f} GB, read once in {1e3 * seconds:.1f} ms"
    for batch in _BATCHES:
        tokens = batch * (_CONTEXT + 64)
        pool_bytes = round(1.05 * 4 * tokens * shape.layers * shape.kv_heads * shape.head_dim)
        if pool_bytes > free_bytes:
            yield f"batch {batch}: not measured, its cache of {pool_bytes / 1e9:.1f} GB is too much for this GPU"
            continue
        for words in ("", "evict=streaming_llm budget.fraction=0.5"):
            run = Run(model, compute_dtype(device), pool_bytes)
            run.fill(spec_of(words), batch, _CONTEXT)
            step = median(_step_seconds(run, device))
            yield (
                f"batch {batch:2} {words or 'everything kept':40} {1e3 * step:7.1f} ms a step, "
                f"{batch / step:8.1f} tokens/s, {run.held_bytes() / 1e9:.2f} GB held"
            )
            del run


def shape_weights(shape: DecoderConfig) -> int:
    """How many weights a model of this shape has, but for its norms."""
    attention = shape.hidden * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    layer = attention + 3 * shape.hidden * shape.inner
    return shape.layers * layer + 2 * shape.vocabulary * shape.hidden


def _step_seconds(run: Run, device: torch.device) -> list[float]:
    seconds = []
    for _ in range(_WARM_UP + _STEPS):
        _wait(device)
        started = time.perf_counter()
        run.step()
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return seconds[_WARM_UP:]


def _reading_seconds(device: torch.device) -> float:
    """Of one byte, as a sum over a large tensor reads it."""
    large = torch.ones(1 << 28, dtype=torch.bfloat16, device=device)
    seconds = []
    for _ in range(5):
        _wait(device)
        started = time.perf_counter()
        large.sum()
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds) / large.nbytes


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main())
