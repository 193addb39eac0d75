"""Exports a model for OpenVINO with weights of a chosen precision: by Optimum Intel, once, into the cache.

Optimum Intel needs PyTorch and a transformers of its own, so it lives in an environment apart from the engine's.
"""

import os
import re
import subprocess
import time
from collections import deque
from pathlib import Path

from backends.base import Say
from backends.environment import Recipe
from harness.core.cache import cache_root, cached_folder
from harness.core.errors import EngineError
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelFiles

EXPORTER = Recipe(
    name="openvino-export-cpu",
    imports=("optimum.exporters.openvino", "optimum.intel", "nncf"),
    packages=("optimum-intel", "nncf", "openvino", "torch", "transformers"),
    uninstall=("torchvision",),  # the registry's is built for CUDA, and breaks the import of transformers
    megabytes=1600,
    on_request=True,  # a model is served as it is where no weight_dtype is asked for
)
# Everything is said: left out, the defaults depend on the model's name, and some fetch a data set.
_GROUPS = ("--group-size", "64", "--group-size-fallback", "adjust", "--ratio", "1.0")
WEIGHTS: dict[str, tuple[str, ...]] = {
    "f32": ("--weight-format", "fp32"),
    "f16": ("--weight-format", "fp16"),
    "int8": ("--weight-format", "int8"),
    "int4": ("--weight-format", "int4", *_GROUPS),
}
_EXPORT = 1  # raise it whenever an export changes, so that what older versions made is not used
_MODULE = "optimum.commands.optimum_cli"
_GRAPH = "openvino_model.xml"
_STAGES = (
    (re.compile(r"Loading weights", re.I), "reading the weights"),
    (re.compile(r"Converting|tracing|TracerWarning", re.I), "tracing the model"),
    (re.compile(r"compress|Statistics|Mixed-Precision", re.I), "compressing the weights"),
)
_TELL_EVERY_S = 1.0
_LAST_WORDS = 12


def exported(model: ModelFiles, weight_dtype: str) -> Path:
    """Folder where the export is, or will be."""
    return cache_root() / _key(model, weight_dtype)


def export(model: ModelFiles, weight_dtype: str, say: Say) -> Path:
    """The folder with openvino_model.xml, made if it is not there; half a minute for a small model, told by `say`.

    Raises EngineError where the exporter is not installed or fails, ModelError for a model it cannot read.
    """

    def build(folder: Path) -> None:
        if not EXPORTER.installed():
            raise EngineError(exporter_missing(model))
        command = ["export", "openvino", "--model", str(hf_folder(model, say))]
        command += ["--task", "text-generation-with-past", "--library", "transformers"]
        command += ["--disable-convert-tokenizer", *WEIGHTS[weight_dtype], str(folder)]
        _run(command, f"exporting with {weight_dtype} weights", say)
        if not (folder / _GRAPH).is_file():
            raise EngineError(f"Optimum Intel ended well but wrote no {_GRAPH} for {model.name}.")

    return cached_folder(_key(model, weight_dtype), build)


def is_exported(folder: Path) -> bool:
    """Whether a model's folder is an export already."""
    return (folder / _GRAPH).is_file()


def exporter_missing(model: ModelFiles) -> str:
    """What to tell where an export is needed and cannot be made."""
    return (
        f"{model.name} has to be exported for OpenVINO with such weights, and the exporter is not installed. Type: "
        "python -m harness.engines action=install engine=openvino with=export (or add backend.install=true)"
    )


def _key(model: ModelFiles, weight_dtype: str) -> str:
    parts = (model.sha256[:16], weight_dtype, EXPORTER.key()[:8], f"v{_EXPORT}")
    return f"openvino/{'-'.join(parts)}"


def _run(arguments: list[str], what: str, say: Say) -> None:
    """Run Optimum's command, telling its stage and time; EngineError with its last words where it fails."""
    started, stage, told, last = time.monotonic(), "starting", 0.0, deque[str](maxlen=_LAST_WORDS)
    process = subprocess.Popen(
        [str(EXPORTER.python()), "-P", "-m", _MODULE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,  # carriage returns of progress bars end lines, too
        errors="replace",
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
    )
    if process.stdout is None:
        raise RuntimeError("the exporter's output is not a pipe")
    try:
        for line in process.stdout:
            last.append(line.strip())
            stage = next((words for pattern, words in _STAGES if pattern.search(line)), stage)
            seconds = time.monotonic() - started
            if seconds - told >= _TELL_EVERY_S:
                told = seconds
                say(f"{what}: {stage}, {seconds:.0f} s")
        status = process.wait()
    finally:
        if process.poll() is None:  # interrupted: nothing goes on behind the user's back
            process.kill()
            process.wait()
        process.stdout.close()
    if status:
        words = "\n".join(line for line in last if line)
        raise EngineError(f"Optimum Intel ended with status {status}:\n{words}")
