"""config.json of a decoder, read to the last key: what is not understood is refused, never nearly right.

Sources: the configuration classes of transformers 5.24 (llama, mistral, qwen2, qwen3), whose defaults hold where a
file leaves out a key that has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from backends.kvcompress.model.rope import ROPE_KEYS, RopeConfig, read_rope
from harness.core.errors import ModelError, UsageError

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_NEEDED = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings", "rms_norm_eps",
)  # fmt: skip
_READ = (
    *_NEEDED, "num_key_value_heads", "head_dim", "attention_bias", "mlp_bias", "tie_word_embeddings",
    "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "architectures", *ROPE_KEYS,
)  # fmt: skip
# They say how the model is trained, generated from, filed or held; the logits do not depend on them.
_WITHOUT_EFFECT = (
    "_name_or_path", "_attn_implementation", "attention_dropout", "attn_implementation", "bos_token_id",
    "chunk_size_feed_forward", "dtype", "eos_token_id", "id2label", "initializer_range", "is_decoder",
    "is_encoder_decoder", "is_llama_config", "label2id", "output_attentions", "output_hidden_states", "pad_token_id",
    "pretraining_tp", "problem_type", "return_dict", "torch_dtype", "transformers.js_config", "transformers_version",
    "unk_token_id", "use_cache",
)  # fmt: skip
# With these values (or null) they change nothing; with others it is not what is computed here.
_ONLY = {
    "hidden_act": "silu",
    "quantization_config": None,
    "rope_interleaved": False,
    "use_mrope": False,
    "add_cross_attention": False,
    "partial_rotary_factor": 1.0,
}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and kinds of a decoder's parts.

    inner: width of the MLP. window: the most positions that are attended to as causal attention does, None without
    limit: a sliding window, or the length up to which dynamic RoPE does not scale. head_norms: queries and keys are
    normalised per head (Qwen3). tied: the head reads the embedding.
    """

    family: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context_length: int
    window: int | None
    norm_eps: float
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norms: bool
    tied: bool
    rope: RopeConfig

    def check_context(self, context: int) -> None:
        """Raises UsageError where a context of so many tokens is not computed as the model does."""
        if self.window is not None and context > self.window:
            raise UsageError(
                f"This model attends to {self.window} tokens, by a sliding window or unscaled positions, and "
                f"{context} were asked for. Ask for a context of at most {self.window} tokens."
            )


def read_config(folder: Path) -> DecoderConfig:
    """The geometry that config.json in `folder` describes; raises ModelError where it is not understood."""
    path = folder / "config.json"
    try:
        config = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read: {error}. Give the folder that the model came in."
        ) from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds no JSON object. Give the folder that the model came in.")
    return decoder_config(config)


def decoder_config(config: Mapping[str, Any]) -> DecoderConfig:
    """The same of what config.json holds."""
    _refuse_what_is_unknown(config)
    family = config["model_type"]
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or (128 if family == "qwen3" else hidden // heads)
    kv_heads = config.get("num_key_value_heads") or heads
    if heads % kv_heads:
        raise _refusal(f"{heads} query heads cannot share {kv_heads} KV heads")
    if head_dim % 2:
        raise _refusal(f"head_dim={head_dim} is odd, and rotary positions turn pairs")
    rope = read_rope(config)
    windows = [_sliding_window(config), config["max_position_embeddings"] if rope.kind == "dynamic" else None]
    given_bias = bool(config.get("attention_bias")) and family in ("llama", "qwen3")
    return DecoderConfig(
        family=family,
        hidden=hidden,
        inner=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=config["vocab_size"],
        context_length=config["max_position_embeddings"],
        window=min((window for window in windows if window is not None), default=None),
        norm_eps=config["rms_norm_eps"],
        qkv_bias=given_bias or family == "qwen2",
        output_bias=given_bias,
        mlp_bias=bool(config.get("mlp_bias")) and family == "llama",
        head_norms=family == "qwen3",
        tied=bool(config.get("tie_word_embeddings")),
        rope=rope,
    )


def _refuse_what_is_unknown(config: Mapping[str, Any]) -> None:
    # Only Llama's oldest files leave out the KV heads, and mean one per query head.
    needed = _NEEDED if config.get("model_type") == "llama" else (*_NEEDED, "num_key_value_heads")
    if missing := [key for key in needed if config.get(key) is None]:
        raise _refusal(f"it lacks {', '.join(missing)}")
    family = config["model_type"]
    if family not in _ARCHITECTURES:
        raise _refusal(f"model_type={family} is none of {', '.join(_ARCHITECTURES)}")
    named = config.get("architectures") or [_ARCHITECTURES[family]]
    if named != [_ARCHITECTURES[family]]:
        raise _refusal(f"architectures={named} is not {_ARCHITECTURES[family]}")
    if unknown := sorted(config.keys() - {*_READ, *_WITHOUT_EFFECT, *_ONLY}):
        raise _refusal(f"{', '.join(unknown)} is not understood")
    for key, only in _ONLY.items():
        if config.get(key) not in (None, only):
            raise _refusal(f"{key}={config[key]} is not {only}")
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key) and family not in (("llama", "qwen3") if key == "attention_bias" else ("llama",)):
            raise _refusal(f"{key}=true is not what a {family} has")


def _sliding_window(config: Mapping[str, Any]) -> int | None:
    """Tokens that the narrowest layer attends to; None where every layer attends to all."""
    family = config["model_type"]
    kinds = config.get("layer_types")
    if kinds is not None and (
        len(kinds) != config["num_hidden_layers"] or not {*kinds} <= {"full_attention", "sliding_attention"}
    ):
        raise _refusal("layer_types is not full_attention or sliding_attention for each layer")
    window = config.get("sliding_window", 4096)
    if family == "llama":
        if config.get("sliding_window") or (kinds is not None and "sliding_attention" in kinds):
            raise _refusal("sliding_window is not what a llama has")
        return None
    if family == "mistral":
        return window
    if not config.get("use_sliding_window"):
        return None
    if kinds is not None:
        return window if "sliding_attention" in kinds else None
    return window if config["num_hidden_layers"] > config.get("max_window_layers", 28) else None


def _refusal(what: str) -> ModelError:
    return ModelError(
        f"This model's config.json is not supported: {what}. Choose a model or engine that fits."
    )
