"""A decoder's weights from safetensors, in the places where the forward pass reads them.

What is multiplied by the same input lies in one matrix: queries, keys and values; gate and up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import torch
from safetensors import SafetensorError, safe_open

from backends.kvcompress.model.config import DecoderConfig
from backends.kvcompress.model.linear import Linear, linear_map
from harness.core.errors import ModelError

_DTYPES = ("BF16", "F16", "F32")
_IGNORED = "rotary_emb.inv_freq"  # older files carry what is calculated here


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. qkv: rows of the queries, then keys, then values. gate_up: rows of the gate, then up.

    The norms are [hidden]; query_norm and key_norm [head_dim], or None.
    """

    attention_norm: torch.Tensor
    qkv: Linear
    output: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """embedding [vocabulary, hidden], on a CPU in the type it is stored in; the head multiplies by it where tied."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: Linear


def compute_dtype(device: torch.device) -> torch.dtype:
    """float32 on a CPU, whose bfloat16 products are slow; bfloat16 elsewhere."""
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def load_weights(
    folder: Path, config: DecoderConfig, device: torch.device, rounded: bool = False
) -> DecoderWeights:
    """All weights; raises ModelError unless every tensor is known and of its shape.

    rounded: matrices to int8 with a scale for each row, the head's too; the embedding and the norms stay as they are.
    """
    files = _Files(folder)
    load = _Loader(files, device, rounded)
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    hidden, inner = config.hidden, config.inner

    def layer(at: str) -> LayerWeights:
        attention, mlp = f"{at}.self_attn", f"{at}.mlp"
        head_norm = (config.head_dim,)
        return LayerWeights(
            attention_norm=load.tensor(f"{at}.input_layernorm.weight", (hidden,)),
            qkv=load.matrix(
                (f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"),
                (q, kv, kv), hidden, config.qkv_bias,
            ),
            output=load.matrix((f"{attention}.o_proj",), (hidden,), q, config.output_bias),
            query_norm=load.tensor(f"{attention}.q_norm.weight", head_norm) if config.head_norms else None,
            key_norm=load.tensor(f"{attention}.k_norm.weight", head_norm) if config.head_norms else None,
            mlp_norm=load.tensor(f"{at}.post_attention_layernorm.weight", (hidden,)),
            gate_up=load.matrix((f"{mlp}.gate_proj", f"{mlp}.up_proj"), (inner, inner), hidden, config.mlp_bias),
            down=load.matrix((f"{mlp}.down_proj",), (hidden,), inner, config.mlp_bias),
        )  # fmt: skip

    embedding = load.stored(("model.embed_tokens.weight",), ((config.vocabulary, hidden),))
    weights = DecoderWeights(
        embedding=embedding,
        layers=tuple(layer(f"model.layers.{number}") for number in range(config.layers)),
        norm=load.tensor("model.norm.weight", (hidden,)),
        head=_head(load, files, config, embedding),
    )
    if left := sorted(name for name in files.names() - load.read if not name.endswith(_IGNORED)):
        raise ModelError(
            f"{folder} holds {len(left)} tensors that its config.json does not account for, such as {left[0]}. "
            "Choose a model of a supported family."
        )
    return weights


def _head(load: "_Loader", files: "_Files", config: DecoderConfig, embedding: torch.Tensor) -> Linear:
    if not config.tied:
        return load.matrix(("lm_head",), (config.vocabulary,), config.hidden, bias=False)
    if "lm_head.weight" in files.names():  # some writers store the tied copy as well
        copy = load.stored(("lm_head.weight",), (tuple(embedding.shape),))
        if not torch.equal(copy, embedding):
            raise ModelError(
                "config.json ties the head to the embedding, but the file holds two different ones."
            )
    return linear_map(embedding, None, load.rounded)


class _Files:
    """Which safetensors file holds which tensor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        index = folder / "model.safetensors.index.json"
        try:
            if index.is_file():
                self._places: dict[str, str] = orjson.loads(index.read_bytes())["weight_map"]
                paths = [folder / name for name in sorted({*self._places.values()})]
            else:
                paths = sorted(folder.glob("*.safetensors"))
                if len(paths) != 1:
                    raise ModelError(
                        f"{folder} holds {len(paths)} safetensors files and no index of them. "
                        "Give a folder with model.safetensors or model.safetensors.index.json."
                    )
            self._open = {path.name: safe_open(path, framework="pt", device="cpu") for path in paths}
            if not index.is_file():
                self._places = dict.fromkeys(self._open[paths[0].name].keys(), paths[0].name)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise ModelError(
                f"The weights in {folder} cannot be read: {error}. Download them again."
            ) from error

    def names(self) -> set[str]:
        return {*self._places}

    def read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """As stored, on the CPU; raises ModelError."""
        if name not in self._places:
            raise ModelError(f"{self._folder} lacks the tensor {name}. Download the model again.")
        file = self._open[self._places[name]]
        try:
            part = file.get_slice(name)
            found, dtype = tuple(part.get_shape()), part.get_dtype()
        except SafetensorError as error:
            raise ModelError(
                f"{self._places[name]} lacks the tensor {name}: {error}. Download it again."
            ) from error
        if found != shape:
            raise ModelError(
                f"The tensor {name} has shape {list(found)}, and config.json says {list(shape)}."
            )
        if dtype not in _DTYPES:
            raise ModelError(f"The tensor {name} is stored as {dtype}. Give a model in {', '.join(_DTYPES)}.")
        return file.get_tensor(name)


class _Loader:
    """Reads tensors onto the device, and remembers which."""

    def __init__(self, files: _Files, device: torch.device, rounded: bool) -> None:
        self._files, self._device, self.rounded = files, device, rounded
        self._dtype = compute_dtype(device)
        self.read: set[str] = set()

    def stored(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """The tensors one below the other: on a CPU in the type they are stored in, elsewhere in the compute type."""
        parts = [self._files.read(name, shape) for name, shape in zip(names, shapes, strict=True)]
        self.read.update(names)
        return torch.cat(parts).to(self._device, None if self._device.type == "cpu" else self._dtype)

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """One tensor in the compute type."""
        return self.stored((name,), (shape,)).to(self._dtype)

    def matrix(self, names: Sequence[str], rows: Sequence[int], columns: int, bias: bool) -> Linear:
        """One map made of those whose names are given, of so many rows each."""
        weight = self.stored([f"{name}.weight" for name in names], [(size, columns) for size in rows])
        if not bias:
            return linear_map(weight, None, self.rounded)
        offsets = self.stored([f"{name}.bias" for name in names], [(size,) for size in rows])
        return linear_map(weight, offsets.to(self._dtype), self.rounded)
