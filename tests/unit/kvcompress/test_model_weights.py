"""Weights from safetensors: where each row ends up, in which dtype, and which files are refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends.kvcompress.model.config import read_config
from backends.kvcompress.model.linear import Linear, rounded_rows
from backends.kvcompress.model.weights import DecoderWeights, load_weights
from harness.core.errors import ModelError
from tests.support.tiny_models import tiny_model, written

CPU = torch.device("cpu")


def rows(linear: Linear, columns: int) -> torch.Tensor:
    """The weights of a map, as what it makes of each unit vector."""
    return linear(torch.eye(columns)).T


def loaded(folder: Path) -> DecoderWeights:
    return load_weights(folder, read_config(folder), CPU)


def rewritten(folder: Path, **changes: torch.Tensor | None) -> Path:
    """The same file with other tensors, or without some; dots are written as two underscores."""
    file = folder / "model.safetensors"
    tensors = load_file(file) | {name.replace("__", "."): value for name, value in changes.items()}
    save_file({name: value for name, value in tensors.items() if value is not None}, file)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tiny_model("qwen2"), tmp_path)


def test_what_reads_the_same_input_lies_in_one_matrix(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    layer = loaded(folder).layers[1]
    attention = "model.layers.1.self_attn"
    qkv = [stored[f"{attention}.{part}_proj.weight"] for part in "qkv"]
    biases = [stored[f"{attention}.{part}_proj.bias"] for part in "qkv"]
    gate_up = [stored[f"model.layers.1.mlp.{part}_proj.weight"] for part in ("gate", "up")]
    offset = layer.qkv(torch.zeros(1, 48))
    assert torch.equal(offset[0], torch.cat(biases))
    torch.testing.assert_close(rows(layer.qkv, 48) - offset.T, torch.cat(qkv))
    assert torch.equal(rows(layer.gate_up, 48), torch.cat(gate_up))
    assert layer.query_norm is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_any_float_is_what_it_was_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = written(tiny_model("llama").to(dtype), tmp_path)
    stored = load_file(folder / "model.safetensors")["model.layers.0.mlp.down_proj.weight"]
    down = rows(loaded(folder).layers[0].down, 80)
    assert (stored.dtype, down.dtype) == (dtype, torch.float32)
    assert torch.equal(down, stored.float())


def test_shards_are_one_model(tmp_path: Path) -> None:
    model = tiny_model("qwen3")
    whole = loaded(written(model, tmp_path / "whole"))
    shards = written(model, tmp_path / "shards", max_shard_size="40KB")
    assert len([*shards.glob("*.safetensors")]) > 2
    again = loaded(shards)
    assert torch.equal(rows(whole.head, 48), rows(again.head, 48))
    for ours, theirs in zip(whole.layers, again.layers, strict=True):
        assert torch.equal(rows(ours.qkv, 48), rows(theirs.qkv, 48))
        assert torch.equal(rows(ours.gate_up, 48), rows(theirs.gate_up, 48))


def test_a_tied_head_is_the_embedding_itself(tmp_path: Path) -> None:
    folder = written(tiny_model("llama", tie_word_embeddings=True), tmp_path)
    weights = loaded(folder)
    assert torch.equal(rows(weights.head, 48), weights.embedding)
    same = rewritten(folder, lm_head__weight=weights.embedding.clone())
    assert torch.equal(rows(loaded(same).head, 48), weights.embedding)
    with pytest.raises(ModelError, match="two different"):
        loaded(rewritten(folder, lm_head__weight=weights.embedding + 1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__norm__weight": None}, "lacks the tensor model.norm.weight"),
        ({"model__norm__weight": torch.zeros(47)}, r"shape \[47\]"),
        ({"model__norm__weight": torch.zeros(48, dtype=torch.float64)}, "stored as F64"),
        ({"model__layers__3__mlp__up_proj__weight": torch.zeros(80, 48)}, "does not account for"),
        ({"model__layers__0__self_attn__o_proj__bias": torch.zeros(48)}, "does not account for"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(
    changes: dict[str, torch.Tensor | None], words: str, folder: Path
) -> None:
    with pytest.raises(ModelError, match=words):
        loaded(rewritten(folder, **changes))


def test_frequencies_that_older_files_carry_are_passed_over(folder: Path) -> None:
    loaded(rewritten(folder, model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(4)))


def test_files_that_cannot_be_read_are_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelError, match="Download them again"):
        loaded(folder)
    file.unlink()
    with pytest.raises(ModelError, match="0 safetensors files"):
        loaded(folder)


def test_rounded_rows_are_within_half_a_step(folder: Path) -> None:
    plain = loaded(folder)
    rounded = load_weights(folder, read_config(folder), CPU, rounded=True)
    for part, columns in (("qkv", 48), ("output", 48), ("gate_up", 48), ("down", 80)):
        exact = rows(getattr(plain.layers[2], part), columns)
        found = rows(getattr(rounded.layers[2], part), columns)
        steps = exact.abs().amax(1, keepdim=True) / 127
        if part != "qkv":  # whose bias is on top
            assert ((found - exact).abs() <= 0.501 * steps).all()
        assert (found != exact).any()
    assert torch.equal(plain.embedding, rounded.embedding)


def test_a_row_of_zeros_stays_one() -> None:
    values, scales = rounded_rows(torch.tensor([[0.0, 0.0], [1.0, -2.0]]))
    assert values.tolist() == [[0, 0], [64, -127]]  # 63.5 rounds to the even number
    assert torch.isfinite(scales).all()
