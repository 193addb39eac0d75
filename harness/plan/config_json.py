"""From the keys of a model's public config.json to its geometry. Nothing is guessed: an unknown family, a missing
key or sizes that contradict each other are errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import UsageError
from harness.plan.geometry import Experts, Geometry, LatentAttention


@dataclass(frozen=True)
class Family:
    """What all models of one `model_type` share. defaults: of keys that its config.json may leave out.

    Source: the family's configuration and modelling files in Hugging Face transformers 5.
    """

    query_bias: bool = False
    head_norms: bool = False
    norms: int = 2
    defaults: Mapping[str, Any] = field(default_factory=dict)


FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(),
    "qwen2": Family(query_bias=True),
    "qwen3": Family(head_norms=True),
    "qwen3_moe": Family(head_norms=True),
    "gemma3_text": Family(
        norms=4,
        head_norms=True,
        defaults={
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
            "sliding_window_pattern": 6,
            "head_dim": 256,
        },
    ),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
}


class _Keys:
    """The keys of one config.json; what is asked for and missing or no size is an error."""

    def __init__(self, config: Mapping[str, Any], name: str, defaults: Mapping[str, Any]):
        self.values = {**defaults, **{key: value for key, value in config.items() if value is not None}}
        self.name = name

    def size(self, key: str) -> int:
        """A whole number of at least 1."""
        value = self.values.get(key)
        if value is None:
            raise UsageError(f"The config.json of {self.name} lacks {key}. Complete it, or choose a preset.")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(
                f"The config.json of {self.name} says {key}: {value!r}. It must be a whole number."
            )
        return value

    def optional(self, key: str) -> int | None:
        """The same, None where it is missing, null or 0."""
        return self.size(key) if self.values.get(key) else None

    def get(self, key: str, otherwise: Any = None) -> Any:
        return self.values.get(key, otherwise)


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a config.json, or of the one in a model's folder. Raises UsageError where there is none."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = orjson.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror}). Give model.path=FOLDER_OR_CONFIG_JSON."
        ) from error
    except ValueError as error:
        raise UsageError(f"{file} is no JSON: {error}.") from error
    if not isinstance(config, dict):
        raise UsageError(f"{file} is no config.json: it holds no keys.")
    return config


def geometry_of(config: Mapping[str, Any], name: str) -> Geometry:
    """The geometry that a config.json describes; of a model that also sees images its language part alone.

    Raises UsageError for an unknown family, a missing key, heads that do not divide, or an unknown kind of layer.
    """
    config = {**config, **(config.get("text_config") or {})}
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        raise UsageError(
            f"{name} is of the family {model_type!r}, whose parameters this version cannot count. "
            f"Known: {', '.join(FAMILIES)}."
        )
    family = FAMILIES[model_type]
    keys = _Keys(config, name, family.defaults)
    heads, hidden = keys.size("num_attention_heads"), keys.size("hidden_size")
    kv_heads = keys.optional("num_key_value_heads") or heads
    latent = _latent(keys) if model_type.startswith("deepseek") else None
    if heads % kv_heads:
        raise UsageError(
            f"{name}: {heads} attention heads cannot share {kv_heads} KV heads evenly. "
            "num_attention_heads must be a multiple of num_key_value_heads."
        )
    head_dim = keys.optional("head_dim")
    if head_dim is None:
        if hidden % heads and latent is None:
            raise UsageError(
                f"{name}: hidden_size {hidden} does not divide by {heads} attention heads. Give head_dim."
            )
        head_dim = hidden // heads
    layers = keys.size("num_hidden_layers")
    window, window_layers = _window(keys, layers, model_type)
    return Geometry(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=keys.size("intermediate_size"),
        vocabulary=keys.size("vocab_size"),
        context_length=keys.size("max_position_embeddings"),
        tied_embeddings=bool(keys.get("tie_word_embeddings", False)),
        window=window,
        window_layers=window_layers,
        norms=family.norms,
        query_bias=family.query_bias,
        head_norms=family.head_norms,
        latent=latent,
        experts=_experts(keys, layers),
    )


def _latent(keys: _Keys) -> LatentAttention:
    return LatentAttention(
        latent=keys.size("kv_lora_rank"),
        rope=keys.size("qk_rope_head_dim"),
        query_latent=keys.optional("q_lora_rank"),
        nope=keys.size("qk_nope_head_dim"),
        value=keys.size("v_head_dim"),
    )


def _window(keys: _Keys, layers: int, model_type: str) -> tuple[int | None, int]:
    """Size of the sliding window and how many layers have it."""
    window = keys.optional("sliding_window")
    if model_type.startswith("qwen") and not keys.get("use_sliding_window", False):
        window = None  # these configs name a window that is switched off
    if window is None:
        return None, 0
    kinds = keys.get("layer_types")
    if kinds:
        unknown = set(kinds) - {"sliding_attention", "full_attention"}
        if unknown or len(kinds) != layers:
            what = f"layers of the kind {sorted(unknown)[0]}" if unknown else f"{len(kinds)} layer_types"
            raise UsageError(f"{keys.name} has {what}; this version cannot count the KV cache of that.")
        sliding = sum(kind == "sliding_attention" for kind in kinds)
    elif pattern := keys.get("sliding_window_pattern") or keys.get("_sliding_window_pattern"):
        sliding = layers - layers // pattern  # every pattern-th layer sees everything
    elif model_type.startswith("qwen"):
        sliding = max(0, layers - keys.size("max_window_layers"))
    else:
        sliding = layers
    return (window, sliding) if sliding else (None, 0)


def _experts(keys: _Keys, layers: int) -> Experts | None:
    """The mixture of experts; the three spellings are Mixtral's, Qwen's and DeepSeek's."""
    spelling = next(
        (key for key in ("num_local_experts", "num_experts", "n_routed_experts") if keys.get(key)), None
    )
    if spelling is None:
        return None
    routed, active = keys.size(spelling), keys.size("num_experts_per_tok")
    if active > routed:
        raise UsageError(f"{keys.name}: {active} experts per token are more than the {routed} there are.")
    dense = range(keys.get("first_k_dense_replace") or 0)
    every = keys.get("decoder_sparse_step") or keys.get("moe_layer_freq") or 1
    alone = set(keys.get("mlp_only_layers") or ())
    offset = 1 if spelling == "num_experts" else 0
    with_experts = [
        layer
        for layer in range(layers)
        if layer not in dense and layer not in alone and (layer + offset) % every == 0
    ]
    size = "intermediate_size" if spelling == "num_local_experts" else "moe_intermediate_size"
    return Experts(routed, active, keys.optional("n_shared_experts") or 0, keys.size(size), len(with_experts))
