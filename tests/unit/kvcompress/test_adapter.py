import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.gpu import nvidia_gpu_here
from backends.kvcompress.adapter import KvCompressBackend
from backends.kvcompress.requested import check_kv, default_spec
from backends.serving.engine import EngineConfig, kv_check
from harness.core.errors import EngineError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import kvcompress, openvino

_GEOMETRY = ModelGeometry(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192)
_CUDA = {"device": "cuda", "dtype": "bf16", "kv_dtype": "bf16", "kernel": "torch"}


@pytest.fixture
def model(tmp_path: Path) -> ModelFiles:
    (tmp_path / "model.safetensors").touch()
    return ModelFiles("tiny", tmp_path, tmp_path, _GEOMETRY, "0" * 64)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "bf16"}, "backend.dtype=bf16.*Choose f32"),
        ({"kv_dtype": "int8"}, "backend.kv_dtype=int8.*Choose f32 or bf16"),
        ({"weight_dtype": "int4"}, "backend.weight_dtype=int4"),
        ({"prefix_cache": True}, "prefix_cache=true"),
        ({"tensor_parallel": 2}, "tensor_parallel=2"),
        ({"kernel": "cuda"}, "kernel=cuda.*Choose compiled or torch"),
        ({"scheduler": "fair"}, "scheduler=fair.*Choose static or dynamic"),
        ({"kv": {"evict": "h2oo"}}, "kv.evict=h2oo needs a budget"),
        (
            {"kv": {"evict": "h2oo", "budget": {"tokens": 9}}},
            r"kv\.evict=h2oo is unknown. Choose one of .*none",
        ),
        ({"kv": {"share": "minicache"}}, r"share=minicache.*Use backend\.kernel=torch"),
        ({"kv": {"quant": "int5"}}, r"kv\.quant=int5 is unknown"),
        ({"kv": {"evict": "knorm", "budget": {"tokens": 9, "fraction": 0.5}}}, "exactly one of"),
        ({"kv_bytes": 46080 * 5119}, "5119 tokens of f32"),
        ({"device": "gpu"}, "device=gpu.*Choose cpu or cuda"),
    ],
)
def test_what_it_cannot_honour_is_refused_by_name(
    model: ModelFiles, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        kvcompress(**changes).check(model)


def test_cuda_without_an_nvidia_gpu_is_refused(model: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    if not nvidia_gpu_here():
        with pytest.raises(UsageError, match=r"device=cuda: this machine shows no NVIDIA GPU\. Use cpu"):
            kvcompress(**_CUDA).check(model)
    monkeypatch.setattr("backends.kvcompress.adapter.nvidia_gpu_here", lambda: True)
    with pytest.raises(UsageError, match=r"kernel=compiled.*Choose torch"):
        kvcompress(**{**_CUDA, "kernel": "compiled"}).check(model)
    assert kvcompress(**_CUDA).capabilities().caveats == ("kvcompress on CUDA: not verified on hardware",)


def test_a_compressed_cache_may_be_larger_than_its_pool_would_be_in_full(model: ModelFiles) -> None:
    small = {"kv_bytes": 46080 * 1000}
    evicting = kvcompress(**small, kv={"evict": "knorm", "budget": {"tokens": 500}})
    try:
        evicting.check(model)
    except EngineError as error:  # the engine itself may be missing here
        assert "not installed" in str(error)


def test_its_launch_line_holds_every_option_and_the_kv_setting(model: ModelFiles) -> None:
    backend = kvcompress(kv={"evict": "knorm", "budget": {"fraction": 0.5}, "quant": "int4"}, threads=None)
    spec = backend.launch(model, 1234, 2)
    assert spec is not None
    options = json.loads(spec.argv[spec.argv.index("--options") + 1])
    config = EngineConfig.from_options(Path("/m"), (2,), options)
    assert (config.threads, config.context_length, config.kv_dtype) == (2, 5120, "f32")
    kv = default_spec(config)
    assert (kv.evict, kv.budget.fraction, kv.quant, kv.recent) == ("knorm", 0.5, "int4", 32)
    assert config.own is not None
    assert config.own["kernel"] == "compiled"


def test_the_kv_of_a_request_is_checked_where_there_is_no_torch(model: ModelFiles) -> None:
    spec = kvcompress().launch(model, 1234, 2)
    assert spec is not None
    options = json.loads(spec.argv[spec.argv.index("--options") + 1])
    config = EngineConfig.from_options(Path("/m"), (2,), options)
    check_kv(config, {"evict": "knorm", "budget": {"tokens": 100}})
    for wrong, words in (
        ({"evict": "x", "budget": {"tokens": 1}}, "kv.evict=x is unknown"),
        ({"budget": {"tokens": 1}}, "needs a policy"),
        ({"sinks": 1.5}, "whole number"),
        ({"quants": "int4"}, "kv does not know quants"),
    ):
        with pytest.raises(UsageError, match=words):
            check_kv(config, wrong)
    assert kv_check("kvcompress", config) is not None
    assert kv_check("openvino", config) is None
    # The harness's side and the HTTP process import no torch.
    here = "import sys, backends.kvcompress.adapter, backends.kvcompress.requested"
    program = f"{here}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_quantised_entries_that_take_as_much_as_exact_ones_are_told() -> None:
    notes = KvCompressBackend(kvcompress(kernel="torch", kv={"quant": "int4"}).options).capabilities().notes
    assert "take as much memory" in notes[0]
    assert kvcompress(kv={"quant": "int4"}).capabilities().notes == ()
    assert openvino().capabilities().notes == ()


def test_idle_threads_leave_the_cores_to_others(model: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = kvcompress(python=sys.executable)
    monkeypatch.setattr("backends.kvcompress.adapter.hf_folder", lambda files: files.weights)
    spec = backend.launch_command(model, 8000, 2)
    assert spec.env["OMP_WAIT_POLICY"] == "passive"
    assert spec.argv[0] == sys.executable
