"""The converter's side, without any engine library: models exported once into the cache by genai's builder.

Keys and values are quantised with scales fixed in the export. They are calibrated on real English (the Python
documentation's topics) through the f32 export, by onnxruntime-genai's own calibration.
"""

import json
import os
import re
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics

from backends.base import Say
from backends.environment import Recipe
from harness.core.cache import cache_root, cached_folder
from harness.core.errors import EngineError
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelFiles

CONVERTER = Recipe(
    name="onnxruntime-export-cpu",
    imports=("onnxruntime_genai", "onnx_ir", "torch", "transformers"),
    packages=("onnxruntime-genai", "onnxruntime", "torch", "transformers"),
    megabytes=1500,
)
WEIGHTS = {"f32": "fp32", "int8": "int8", "int4": "int4"}
CUDA_WEIGHTS = {"f16": "fp16", "int8": "int8", "int4": "int4"}  # all compute, and keep their KV, in f16
SCHEMES = {
    "f32": (),
    "int8": ("int8_per_channel", "int8_per_tensor"),
    "int4": ("int4_per_channel",),
}  # by kv_dtype, the default one first
_PLAIN_KV = {"cpu": "f32", "cuda": "f16"}  # by execution provider
_EXPORT = 1  # raise it whenever an export changes, so that what older versions made is not used
_CALIBRATED = 3  # the same for how scales are calibrated
_BUILDER = "onnxruntime_genai.models.builder"
_CALIBRATION = "onnxruntime_genai.models.quantization.kv_cache_calibration"
# That the scales are calibrated on. Longer texts hold larger values, and coarser scales cost int4 more than rare
# clipping does (22.2 for four texts of 2048 tokens).
_SEQUENCES, _TOKENS = 8, 512
# The largest value met, of keys as they are stored: bounds that hold for any rotation cost int4 more than they save
# (perplexity 26.3 against 21.3 on the default model).
_METHOD = ("--method", "minmax", "--no-k-rotary-envelope")
_LAYER = re.compile(r"Reading (?:decoder )?layer (\d+)")
_LAST_WORDS = 12


def exported(model: ModelFiles, weight_dtype: str, scheme: str | None, provider: str = "cpu") -> Path:
    """Where the export is, or will be.

    scheme: of quantised keys and values, None for f32 (f16 on CUDA). provider: "cpu" or "cuda", what it is made for.
    """
    return cache_root() / _key(model, weight_dtype, scheme, provider)


def export(model: ModelFiles, weight_dtype: str, scheme: str | None, provider: str, say: Say) -> Path:
    """The exported model, made if it is not there; a minute or two, told by `say`. No GPU is needed for any.

    Raises EngineError where the converter is not installed or fails, ModelError for a model it cannot read.
    """

    def build(folder: Path) -> None:
        if not CONVERTER.installed():
            raise EngineError(
                "The model has to be exported for ONNX Runtime, and the converter's environment is not there. Type: "
                "python -m harness.engines action=install engine=onnxruntime (or add backend.install=true)"
            )
        kv = scheme or _PLAIN_KV[provider]
        options = [] if scheme is None else _calibrated(model, scheme, folder, say)
        command = [
            "-i",
            str(hf_folder(model, say)),
            "-o",
            str(folder),
            "-p",
            (CUDA_WEIGHTS if provider == "cuda" else WEIGHTS)[weight_dtype],
            "-e",
            provider,
        ]
        say(f"Exporting {model.name} for ONNX Runtime: {weight_dtype} weights, {kv} KV, {provider}")
        _convert(_BUILDER, [*command, "-c", str(folder / "hub"), *options], model.geometry.layers, say)

    return cached_folder(_key(model, weight_dtype, scheme, provider), build)


def _key(model: ModelFiles, weight_dtype: str, scheme: str | None, provider: str) -> str:
    kv = f"{scheme}.c{_CALIBRATED}" if scheme else _PLAIN_KV[provider]
    target = () if provider == "cpu" else (provider,)
    parts = (model.sha256[:16], weight_dtype, kv, *target, CONVERTER.key()[:8], f"v{_EXPORT}")
    return f"onnxruntime/{'-'.join(parts)}"


def _calibrated(model: ModelFiles, scheme: str, folder: Path, say: Say) -> list[str]:
    """The builder's options for quantised keys and values, after their scales were written into `folder`."""
    base = export(model, "f32", None, "cpu", say)
    texts, scales = folder / "calibration_texts.json", folder / "kv_scales.json"
    # The second half: perplexity reads the same documentation from its beginning, and what a cache is judged on must
    # not be what its scales were fitted to.
    texts.write_text(json.dumps([topics[name] for name in sorted(topics)[len(topics) // 2 :]]))
    say(f"Calibrating the scales of {scheme} on {_SEQUENCES} texts of {_TOKENS} tokens")
    command = ["--model", str(base), "--tokenizer", str(hf_folder(model, say)), "--out", str(scales)]
    command += ["--quant-type", scheme, "--corpus-file", str(texts), *_METHOD]
    command += ["--num-seqs", str(_SEQUENCES), "--target-seq", str(_TOKENS)]
    _convert(_CALIBRATION, command, model.geometry.layers, say)
    return ["--extra_options", f"kv_cache_quant_scheme={scheme}", f"kv_cache_scale_file={scales}"]


def _convert(module: str, arguments: Sequence[str], layers: int, say: Say) -> None:
    """Run a module of the converter, telling every tenth layer; EngineError with its last words where it fails."""
    process = subprocess.Popen(
        [str(CONVERTER.python()), "-P", "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
    )
    last: deque[str] = deque(maxlen=_LAST_WORDS)
    assert process.stdout is not None
    with process:
        try:
            for line in process.stdout:
                last.append(line.split("\r")[-1].strip())
                if (found := _LAYER.search(line)) and int(found[1]) % 10 == 9:
                    say(f"layer {int(found[1]) + 1} of {layers}")
        except BaseException:  # interrupted: nothing goes on behind the user's back
            process.kill()
            process.wait()
            raise
    if process.returncode:
        words = "\n".join(line for line in last if line)
        raise EngineError(f"ONNX Runtime's converter ended with status {process.returncode}:\n{words}")
