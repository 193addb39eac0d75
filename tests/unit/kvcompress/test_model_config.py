"""Which config.json is read as what, and that everything else is refused in one sentence."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from backends.kvcompress.model.config import decoder_config, read_config
from harness.core.errors import ModelError, UsageError
from tests.support.tiny_models import FAMILIES, SIZES


def config(family: str = "llama", **changes: Any) -> dict[str, Any]:
    whole = {"model_type": family, **SIZES, **changes}
    return {key: value for key, value in whole.items() if value is not ...}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_writes_is_understood(family: str, tmp_path: Path) -> None:
    config_class, _ = FAMILIES[family]
    theirs = config_class(**{**SIZES, "num_hidden_layers": 30})
    theirs.save_pretrained(tmp_path)
    ours = read_config(tmp_path)
    assert (ours.heads, ours.kv_heads, ours.layers) == (6, 2, 30)
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 48 // 6)
    assert ours.window == (4096 if family == "mistral" else None)
    assert (ours.qkv_bias, ours.head_norms) == (family == "qwen2", family == "qwen3")


def test_what_old_files_leave_out() -> None:
    ours = decoder_config(config(num_key_value_heads=..., tie_word_embeddings=...))
    assert (ours.kv_heads, ours.head_dim, ours.tied) == (6, 8, False)
    assert (ours.rope.theta, ours.rope.kind) == (10000.0, "default")


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("gemma3", {}, "model_type=gemma3"),
        ("llama", {"hidden_size": ...}, "hidden_size"),
        ("qwen2", {"num_key_value_heads": ...}, "num_key_value_heads"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ("llama", {"no_rope_layers": [0, 1]}, "no_rope_layers"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act=gelu"),
        ("llama", {"rope_interleaved": True}, "rope_interleaved"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ("llama", {"sliding_window": 128}, "sliding_window"),
        ("mistral", {"attention_bias": True}, "attention_bias"),
        ("qwen3", {"mlp_bias": True}, "mlp_bias"),
        ("qwen2", {"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "layer_types"),
        ("llama", {"num_key_value_heads": 4}, "4 KV heads"),
        ("llama", {"head_dim": 7}, "head_dim=7"),
        ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "longrope"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0, "partial_rotary_factor": 0.5}}, "partial"),
        ("llama", {"rope_scaling": {"type": "linear"}}, "factor"),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ("qwen3", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(family: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        decoder_config(config(family, **changes))


def test_a_file_that_is_no_config_is_refused(tmp_path: Path) -> None:
    for content in (b"[1]", b"{", None):
        if content is not None:
            (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(ModelError, match="folder that the model came in"):
            read_config(tmp_path)
        (tmp_path / "config.json").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("family", "changes", "window"),
    [
        ("mistral", {"sliding_window": 128}, 128),
        ("mistral", {"sliding_window": None}, None),
        ("qwen2", {"sliding_window": 128, "use_sliding_window": False}, None),
        ("qwen2", {"sliding_window": 128, "use_sliding_window": True, "max_window_layers": 2}, 128),
        ("qwen2", {"sliding_window": 128, "use_sliding_window": True, "max_window_layers": 3}, None),
        (
            "qwen3",
            {"sliding_window": 99, "use_sliding_window": True, "layer_types": ["full_attention"] * 3},
            None,
        ),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 256),
        ("mistral", {"sliding_window": 300, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, 256),
    ],
)
def test_the_longest_context_that_is_attended_to_in_full(
    family: str, changes: dict[str, Any], window: int | None
) -> None:
    ours = decoder_config(config(family, **changes))
    assert ours.window == window
    if window is None:
        ours.check_context(10**6)
    else:
        ours.check_context(window)
        with pytest.raises(UsageError, match=f"at most {window} tokens"):
            ours.check_context(window + 1)


def test_the_config_is_the_same_after_a_trip_through_json() -> None:
    whole = config("qwen2", rope_scaling={"type": "yarn", "factor": 4.0})
    assert decoder_config(orjson.loads(orjson.dumps(whole))) == decoder_config(whole)
