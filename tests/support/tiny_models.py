"""Tiny decoders with random weights, one of each family, written by transformers as a hub would hold them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

FAMILIES: dict[str, tuple[Callable[..., PreTrainedConfig], Callable[..., PreTrainedModel]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


def tiny_model(family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """In float32; weights so large that attention, biases and norms all matter to the logits."""
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(seed)
    model = model_class(config_class(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                weight.normal_(std=0.5)
            else:
                weight.normal_(std=weight.shape[-1] ** -0.5 * (30 if "embed" in name else 1.5))
    return model


def written(model: PreTrainedModel, folder: Path, **options: Any) -> Path:
    """The folder with the model's config.json and safetensors."""
    logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
    return folder


def reference_logits(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """ids [T] -> [T, vocabulary] of one request from its beginning."""
    with torch.inference_mode():
        return model(ids[None]).logits[0]
