"""The Hugging Face layout of a model: what vLLM, SGLang and the converters of other engines read.

A GGUF file of a plain Llama is written out as config.json, generation_config.json, model.safetensors (bfloat16) and
the tokenizer's files. Anything this module does not know to the last tensor is refused: a model that is nearly
right answers in fluent nonsense or, worse, nearly as well as the right one.
"""

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from harness.core.cache import cached_folder, sha256_of_file
from harness.core.errors import ModelError
from harness.core.gguf_files import field, geometry_of, open_gguf
from harness.core.model_store import ModelFiles, Say
from harness.core.safetensors_file import LazyTensor, write_bfloat16

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from gguf import GGUFReader, ReaderTensor

_LAYOUT = 1  # raise it whenever what is written changes, so that what older versions wrote is not used
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_OF_A_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_INSTEAD = "Give the model's own folder instead: model=path model.path=FOLDER."


def hf_folder(model: ModelFiles, say: Say = lambda line: None) -> Path:
    """The model in the Hugging Face layout: its own folder, or one made from its GGUF, once, into the cache.

    Raises ModelError where the folder holds no such weights or the GGUF is no plain Llama.
    """
    if not model.is_gguf:
        if any(next(model.weights.glob(kind), None) for kind in ("*.safetensors", "pytorch_model*.bin")):
            return model.weights
        raise ModelError(f"{model.weights} holds no safetensors. Give the folder that the model came in.")

    # Rounded once: in a quantised file's F16 copy the values have been rounded already.
    source = model.original or model.weights

    def build(folder: Path) -> None:
        reader = open_gguf(source)
        config = llama_config(reader)
        tensors = _tensors(reader, config)
        say(f"Converting {source.name}: the Hugging Face layout in bfloat16")
        write_bfloat16(folder / "model.safetensors", tensors)
        _write_json(folder / "config.json", config)
        special = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
        _write_json(folder / "generation_config.json", special)
        _write_tokenizer(model.tokenizer_folder, folder)

    tokenizer = sha256_of_file(model.tokenizer_folder / "tokenizer.json")
    key = f"{sha256_of_file(source)[:16]}-{tokenizer[:8]}-hf-v{_LAYOUT}"
    return cached_folder(f"models/{key}", build)


def llama_config(reader: "GGUFReader") -> dict[str, Any]:
    """config.json of a GGUF's model; raises ModelError where it is no Llama with plain rotary positions."""
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        raise ModelError(
            f"This GGUF holds a {architecture!r}; only plain Llamas can be written out. {_INSTEAD}"
        )
    geometry = geometry_of(reader)
    if field(reader, "llama.rope.scaling.type", "none") != "none":
        raise ModelError(f"This GGUF's rotary positions are scaled, which is not written out. {_INSTEAD}")
    if field(reader, "llama.rope.dimension_count", geometry.head_dim) != geometry.head_dim:
        raise ModelError(f"This GGUF rotates a part of each head, which is not written out. {_INSTEAD}")
    end = field(reader, "tokenizer.ggml.eos_token_id")
    names = {tensor.name for tensor in reader.tensors}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": field(reader, "llama.embedding_length"),
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": geometry.layers,
        "num_attention_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "vocab_size": geometry.vocabulary,
        "max_position_embeddings": geometry.context_length,
        "rms_norm_eps": _shortest(field(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(field(reader, "llama.rope.freq_base", 10000.0)),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in names,
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": end,
        "pad_token_id": field(reader, "tokenizer.ggml.padding_token_id", end),
    }


def unpermuted(values: "npt.NDArray[np.float32]", heads: int) -> "npt.NDArray[np.float32]":
    """Rows of a query or key matrix [heads * head_dim, width] in the order that Hugging Face's Llama has them.

    A GGUF puts the two coordinates that are rotated together side by side (0, h/2, 1, h/2 + 1, …, where h is the
    head's size); Hugging Face keeps the halves of a head apart. Source: llama.cpp's convert_hf_to_gguf.py.
    """
    rows, width = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)


def _tensors(reader: "GGUFReader", config: dict[str, Any]) -> dict[str, LazyTensor]:
    found: dict[str, LazyTensor] = {}
    for tensor in reader.tensors:
        match = _LAYER.fullmatch(tensor.name)
        part = _OF_A_LAYER.get(match[2]) if match else None
        if match and part:
            name = f"model.layers.{match[1]}.{part}.weight"
        elif tensor.name in _WHOLE:
            name = _WHOLE[tensor.name]
        else:
            raise ModelError(f"This GGUF's tensor {tensor.name} is none of a plain Llama's. {_INSTEAD}")
        heads = {
            "self_attn.q_proj": config["num_attention_heads"],
            "self_attn.k_proj": config["num_key_value_heads"],
        }
        found[name] = _lazy(tensor, heads.get(part) if part else None)
    expected = {name for gguf_name, name in _WHOLE.items() if gguf_name != "output.weight"} | {
        f"model.layers.{layer}.{part}.weight"
        for layer in range(config["num_hidden_layers"])
        for part in _OF_A_LAYER.values()
    }
    if missing := sorted(expected - found.keys()):
        raise ModelError(
            f"This GGUF lacks {len(missing)} of its model's tensors, such as {missing[0]}. Download it again."
        )
    return found


def _lazy(tensor: "ReaderTensor", heads: int | None) -> LazyTensor:
    def values() -> "npt.NDArray[np.float32]":
        import gguf
        import numpy as np

        plain = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        return plain if heads is None else unpermuted(plain, heads)

    return LazyTensor(tuple(int(size) for size in reversed(tensor.shape)), values)


def _write_tokenizer(source: Path, folder: Path) -> None:
    shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")
    given = source / "tokenizer_config.json"
    config = orjson.loads(given.read_bytes()) if given.is_file() else {}
    # Without a class, readers guess one from the model and may build another tokenizer than the file's.
    config.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def _shortest(value: float) -> float:
    """A float32 of the file as people write it: 1e-05, not 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value)))
