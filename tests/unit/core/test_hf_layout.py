"""Held against the layout's own definition: a tiny GGUF written here, read back from bytes, row by row."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from harness.core.errors import ModelError
from harness.core.geometry import ModelGeometry
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelFiles
from harness.core.safetensors_file import to_bfloat16

HEADS, KV_HEADS, HEAD_DIM, WIDTH, INNER, VOCABULARY = 4, 2, 6, 24, 32, 11
SHAPES = {
    "attn_q": (HEADS * HEAD_DIM, WIDTH),
    "attn_k": (KV_HEADS * HEAD_DIM, WIDTH),
    "attn_v": (KV_HEADS * HEAD_DIM, WIDTH),
    "attn_output": (WIDTH, HEADS * HEAD_DIM),
    "attn_norm": (WIDTH,),
    "ffn_norm": (WIDTH,),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFERENCE_HARNESS_CACHE", str(tmp_path / "cache"))


def _whole_numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Values that F16 and bfloat16 both hold exactly, so that only their places can differ."""
    return np.random.default_rng(seed).integers(-99, 99, shape).astype(np.float32)


def tiny_gguf(
    folder: Path, without: str = "", more: dict[str, np.ndarray] | None = None, **fields
) -> ModelFiles:
    """A Llama of one layer; fields: architecture, scaling."""
    path = folder / "tiny.gguf"
    writer = gguf.GGUFWriter(path, fields.get("architecture", "llama"))
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_context_length(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    if "scaling" in fields:
        writer.add_rope_scaling_type(fields["scaling"])
    tensors = {
        "token_embd.weight": _whole_numbers((VOCABULARY, WIDTH), 0),
        "output_norm.weight": np.ones(WIDTH),
    }
    tensors |= {f"blk.0.{part}.weight": _whole_numbers(shape, 1) for part, shape in SHAPES.items()}
    tensors |= more or {}
    tensors.pop(without, None)
    for name, values in tensors.items():
        writer.add_tensor(name, values.astype(np.float32 if values.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "hello", "eos_token": "t2"}')
    return ModelFiles("tiny", path, folder, ModelGeometry(1, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, 128), "0")


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """By the format's definition."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    body, found = data[8 + size :], {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        half = np.frombuffer(body[start:end], dtype="<u2")
        found[name] = (half.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    assert sum(values.size * 2 for values in found.values()) == len(body)
    return found


def test_a_gguf_becomes_a_hugging_face_folder(tmp_path: Path):
    model = tiny_gguf(tmp_path)
    folder = hf_folder(model)
    written = read_safetensors(folder / "model.safetensors")
    assert np.array_equal(written["model.embed_tokens.weight"], _whole_numbers((VOCABULARY, WIDTH), 0))
    assert np.array_equal(
        written["model.layers.0.mlp.down_proj.weight"], _whole_numbers(SHAPES["ffn_down"], 1)
    )
    assert np.array_equal(
        written["model.layers.0.self_attn.v_proj.weight"], _whole_numbers(SHAPES["attn_v"], 1)
    )
    for name, part, heads in (("q_proj", "attn_q", HEADS), ("k_proj", "attn_k", KV_HEADS)):
        stored, half = _whole_numbers(SHAPES[part], 1), HEAD_DIM // 2
        for head in range(heads):
            for i in range(half):  # the i-th rotated pair lies side by side in a GGUF, half a head apart here
                for second in (0, 1):
                    row = written[f"model.layers.0.self_attn.{name}.weight"][
                        head * HEAD_DIM + second * half + i
                    ]
                    assert np.array_equal(row, stored[head * HEAD_DIM + 2 * i + second])
    assert len(written) == 2 + len(SHAPES)

    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["intermediate_size"], config["vocab_size"]) == (
        WIDTH,
        INNER,
        VOCABULARY,
    )
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 6)
    assert (config["rms_norm_eps"], config["rope_theta"], config["max_position_embeddings"]) == (
        1e-5,
        50000,
        128,
    )
    assert config["tie_word_embeddings"] is True
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert tokenizer["chat_template"] == "hello"
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (folder / "tokenizer.json").read_text() == "{}"


def test_it_is_made_once(tmp_path: Path):
    model, told = tiny_gguf(tmp_path), []
    assert hf_folder(model, told.append) == hf_folder(model, told.append)
    assert len(told) == 1


def test_the_original_of_a_converted_model_is_read(tmp_path: Path):
    model = tiny_gguf(tmp_path)
    assert (
        hf_folder(replace(model, weights=tmp_path / "f16.gguf", original=model.weights)) / "config.json"
    ).is_file()


def test_an_output_matrix_of_its_own_is_kept(tmp_path: Path):
    own = _whole_numbers((VOCABULARY, WIDTH), 5)
    folder = hf_folder(tiny_gguf(tmp_path, more={"output.weight": own}))
    assert np.array_equal(read_safetensors(folder / "model.safetensors")["lm_head.weight"], own)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"architecture": "qwen2"}, "qwen2"),
        ({"scaling": gguf.RopeScalingType.LINEAR}, "scaled"),
        ({"more": {"rope_freqs.weight": np.ones(3)}}, "rope_freqs"),
        ({"more": {"blk.0.attn_q.bias": np.ones(24)}}, "attn_q.bias"),
        ({"more": {"blk.0.ffn_gate_inp.weight": np.ones((2, WIDTH))}}, "ffn_gate_inp"),
        ({"without": "blk.0.ffn_up.weight"}, "up_proj"),
    ],
)
def test_what_is_no_plain_llama_is_refused_and_leaves_nothing(tmp_path: Path, made, words: str):
    with pytest.raises(ModelError, match=words):
        hf_folder(tiny_gguf(tmp_path, **made))
    assert not list((tmp_path / "cache").rglob("config.json"))


def test_a_folder_is_its_own_layout(tmp_path: Path):
    model = ModelFiles("mine", tmp_path, tmp_path, ModelGeometry(1, 1, 1, 1, 1, 1), "0")
    with pytest.raises(ModelError, match="safetensors"):
        hf_folder(model)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert hf_folder(model) == tmp_path


@settings(deadline=None)
@given(arrays.arrays(np.float32, st.integers(1, 20), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_bfloat16_is_the_nearest_with_ties_to_even(values: np.ndarray):
    rounded = to_bfloat16(values)
    for value, half in zip(values.tolist(), rounded.tolist(), strict=True):
        told = struct.unpack("<f", struct.pack("<I", half << 16))[0]
        for neighbour in (half - 1, half + 1):
            if 0 <= neighbour <= 0xFFFF and neighbour >> 15 == half >> 15:
                other = struct.unpack("<f", struct.pack("<I", neighbour << 16))[0]
                nearer, further = abs(told - value), abs(other - value)
                assert nearer < further or (nearer == further and half % 2 == 0)
