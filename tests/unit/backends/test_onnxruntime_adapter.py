import json
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from backends.gpu import nvidia_gpu_here
from backends.onnxruntime import export as converter
from backends.onnxruntime.adapter import OnnxRuntimeBackend
from backends.onnxruntime.export import exported
from harness.core.errors import EngineError, HarnessError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import onnxruntime
from tests.support.processes import command_of

_GEOMETRY = ModelGeometry(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192)
_MODEL = ModelFiles("tiny", Path("/models/tiny.gguf"), Path("/models"), _GEOMETRY, "0" * 64)

_CUDA = {"device": "cuda", "dtype": "f16", "kv_dtype": "f16"}


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "f16"}, "backend.dtype=f16.*Choose f32"),
        ({"weight_dtype": "f16"}, "backend.weight_dtype=f16.*Choose f32 or int8 or int4"),
        ({"kv_dtype": "fp8"}, "backend.kv_dtype=fp8.*Choose f32 or int8 or int4"),
        ({"kv_dtype": "f32", "kv_scheme": "int8_per_channel"}, "kv_scheme.*Choose null"),
        ({"kv_dtype": "int4", "kv_scheme": "int8_per_tensor"}, "kv_scheme.*Choose int4_per_channel"),
        ({"prefix_cache": True}, "prefix_cache=true"),
        ({"tensor_parallel": 2}, "tensor_parallel=2"),
        ({"device": "gpu"}, "device=gpu.*Choose cpu or cuda"),
        ({"device": "cuda"}, "dtype=f32.*on cuda.*Choose f16"),
        ({**_CUDA, "kv_dtype": "int8"}, "kv_dtype=int8.*on cuda.*Choose f16"),
        ({**_CUDA, "weight_dtype": "f32"}, "weight_dtype=f32.*Choose f16 or int8 or int4"),
        ({"kv_bytes": 46080 * 5119}, "5119 tokens of f32"),
        ({"kv_dtype": "int8", "kv_bytes": 11520 * 5119}, "5119 tokens of int8"),
    ],
)
def test_what_it_cannot_honour_is_refused_by_name(changes, words: str):
    with pytest.raises(UsageError, match=words):
        onnxruntime(**changes).check(_MODEL)


def test_cuda_without_an_nvidia_gpu_is_refused():
    if nvidia_gpu_here():
        pytest.skip("this machine has an NVIDIA GPU")
    with pytest.raises(UsageError, match=r"device=cuda\.1: this machine shows no NVIDIA GPU\. Use cpu"):
        onnxruntime(**{**_CUDA, "device": "cuda.1"}).check(_MODEL)


def test_on_cuda_the_pool_and_the_scheme_are_judged_as_on_a_cpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backends.onnxruntime.adapter.nvidia_gpu_here", lambda: True)
    with pytest.raises(UsageError, match=r"kv_scheme.*Choose null"):
        onnxruntime(**_CUDA, kv_scheme="int8_per_channel").check(_MODEL)
    with pytest.raises(UsageError, match="5119 tokens of f16"):
        onnxruntime(**_CUDA, kv_bytes=23040 * 5119).check(_MODEL)
    with pytest.raises(EngineError, match=r"converter is not installed.*engine=onnxruntime device=cuda"):
        onnxruntime(**_CUDA).check(_MODEL)


def test_what_was_never_run_on_a_gpu_says_so_and_how_it_is_served():
    able = onnxruntime(**_CUDA).capabilities()
    assert able.caveats == ("ONNX Runtime on CUDA: not verified on hardware",)
    assert "one after another" in able.notes[0]
    assert onnxruntime().capabilities().caveats == ()


def test_a_missing_converter_is_told_with_the_command_that_brings_it():
    with pytest.raises(EngineError, match=r"converter is not installed.*action=install engine=onnxruntime"):
        onnxruntime().check(_MODEL)


def test_an_export_that_is_there_needs_no_converter():
    backend = onnxruntime()
    exported(_MODEL, "f32", None).mkdir(parents=True)
    try:
        backend.check(_MODEL)
    except HarnessError as error:  # the engine itself may be missing here, the converter must not be missed
        assert "converter" not in str(error)


def _launched(backend: OnnxRuntimeBackend) -> tuple[str, dict]:
    argv = backend.launch(_MODEL, 1234, 2).argv
    return argv[argv.index("--model") + 1], json.loads(argv[argv.index("--options") + 1])


def test_the_launch_line_names_the_export_and_every_option():
    folder, options = _launched(onnxruntime(kv_dtype="int8", kv_scheme="int8_per_tensor", threads=None))
    assert folder == str(exported(_MODEL, "f32", "int8_per_tensor"))
    assert options["threads"] == 2
    assert (options["kv_dtype"], options["context_length"], options["max_running"]) == ("int8", 5120, 8)
    assert _launched(onnxruntime(kv_dtype="int8"))[0].endswith(
        Path(exported(_MODEL, "f32", "int8_per_channel")).name
    )


def test_on_cuda_the_export_is_one_for_cuda_in_f16():
    folder, options = _launched(onnxruntime(**{**_CUDA, "device": "cuda.1"}))
    assert folder == str(exported(_MODEL, "f16", None, "cuda"))
    assert [options[key] for key in ("device", "dtype", "kv_dtype")] == ["cuda.1", "f16", "f16"]
    assert _launched(onnxruntime(**_CUDA, weight_dtype="int4"))[0] == str(
        exported(_MODEL, "int4", None, "cuda")
    )


def test_exports_of_other_models_and_precisions_are_others():
    forms = [("f32", None), ("int4", None), ("f32", "int4_per_channel"), ("int4", None, "cuda")]
    folders = {
        exported(model, *form) for form in forms for model in (_MODEL, replace(_MODEL, sha256="1" * 64))
    }
    assert len(folders) == 8


def test_the_version_of_the_builder_is_recorded_beside_the_engines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backends.engine_adapter.versions_here", lambda packages: {"onnxruntime": "1.31.1"})
    assert onnxruntime().versions() == {"onnxruntime": "1.31.1", "onnxruntime-genai": "0.18.0"}
    monkeypatch.setattr("backends.engine_adapter.versions_here", lambda packages: {})
    assert onnxruntime().versions() == {}


def test_a_converter_ends_with_the_run_that_is_interrupted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backends.environment.Recipe.python", lambda recipe: Path(sys.executable))
    running: list[psutil.Process] = []

    def interrupt(line: str) -> None:
        running.extend(child for child in psutil.Process().children() if "timeit" in command_of(child))
        raise KeyboardInterrupt

    work = "import time; print('Reading layer 9'); time.sleep(300)"
    with pytest.raises(KeyboardInterrupt):
        converter._convert("timeit", ["-n1", "-r1", work], 30, interrupt)
    (process,) = running
    assert not process.is_running()
